package tree

import (
	"fmt"
	"io"
	"strings"

	"clusterctl/hcl/config"
)

// Print writes a tree as text. It escapes control characters.
func Print(w io.Writer, r *Report) error {
	var out strings.Builder
	r.Root.print(&out, "", "")
	for _, u := range r.Unseen {
		fmt.Fprintf(&out, "not shown: %s\n", config.EscapeLine(u))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// print writes a node behind a prefix, and what it owns behind another.
func (n *Node) print(out *strings.Builder, first, next string) {
	text := n.Kind + "/" + n.Name
	if n.State != "" {
		text += "  " + n.State
	}
	if n.Reason != "" {
		text += ": " + n.Reason
	}
	fmt.Fprintln(out, first+config.EscapeLine(text))
	for i, o := range n.Owns {
		if i < len(n.Owns)-1 {
			o.print(out, next+"├─ ", next+"│  ")
		} else {
			o.print(out, next+"└─ ", next+"   ")
		}
	}
}
