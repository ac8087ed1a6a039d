package load

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"clusterctl/hcl/config"
	"clusterctl/hcl/data"
)

// Print writes diagnostics with their source lines.
func (c *Configuration) Print(w io.Writer, diags hcl.Diagnostics, width uint, color bool) error {
	for _, d := range diags { // messages of functions may contain argument values
		d.Summary, d.Detail = config.Mask(d.Summary, c.secrets()), clipText(config.Mask(d.Detail, c.secrets()))
	}
	if c.hasSensitive {
		// Otherwise the writer would show the values of the references in an expression.
		for _, d := range diags {
			d.EvalContext = nil
		}
	}
	for _, d := range diags {
		files := c.Files
		if d.Subject != nil && files[d.Subject.Filename] != nil && c.snippet(d) == nil {
			files = nil // print the position without source lines
		}
		if err := hcl.NewDiagnosticTextWriter(w, files, width, color).WriteDiagnostic(d); err != nil {
			return err
		}
	}
	return nil
}

// Limits of what an error shows, because generated configurations may have lines and values of megabytes.
const (
	maxSnippet = 4000 // in bytes
	maxDetail  = 2000 // in characters
)

func clipText(text string) string {
	if utf8.RuneCountInString(text) <= maxDetail {
		return text
	}
	runes := []rune(text)
	return string(runes[:maxDetail-200]) + " … " + string(runes[len(runes)-200:])
}

// secrets returns the values that must not be shown.
func (c *Configuration) secrets() []string {
	if c.Cluster == nil {
		return nil
	}
	return c.Cluster.Secrets
}

// Format returns the files of a directory (or one file) that are not formatted, with their formatted text.
func Format(path string) (map[string][]byte, error) {
	paths, dir, err := configurationFiles(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		vars, err := data.ListWithSuffix(dir, ".clustervars")
		if err != nil {
			return nil, err
		}
		paths = append(paths, vars...)
	}
	changed := map[string][]byte{}
	for _, p := range paths {
		if strings.HasSuffix(p, ".json") {
			continue
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		if _, diags := hclwrite.ParseConfig(text, p, hcl.InitialPos); diags.HasErrors() {
			return nil, fmt.Errorf("read %s: %w", p, diags)
		}
		if out := hclwrite.Format(text); string(out) != string(text) {
			changed[p] = out
		}
	}
	return changed, nil
}
