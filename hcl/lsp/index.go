package lsp

import (
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"clusterctl/hcl/data"
	"clusterctl/hcl/load"
)

// declaration is a declaration in a file, by the name that references use.
type declaration struct {
	root, name    string // name is TYPE.NAME for data
	path          string
	at, fullRange hcl.Range
	body          *hclsyntax.Body
}

func (d declaration) String() string { return d.root + "." + d.name }

// index returns the declarations in the files of a directory, as far as they can be parsed.
func (s *server) index(dir string) (list []declaration) {
	paths, _ := data.ListWithSuffix(dir, load.Extension) // a directory that cannot be read has no declarations
	for _, path := range paths {
		list = append(list, s.declarations(path)...)
	}
	return list
}

func (s *server) declarations(path string) (list []declaration) {
	text, open := s.texts[path]
	if !open {
		read, err := data.ReadFile(path)
		if err != nil {
			return nil
		}
		text = string(read)
	}
	f, _ := hclsyntax.ParseConfig([]byte(text), path, hcl.InitialPos)
	if f == nil {
		return nil
	}
	body, ok := f.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	for _, b := range body.Blocks {
		d := declaration{
			root:      b.Type,
			name:      strings.Join(b.Labels, "."),
			path:      path,
			at:        b.DefRange(),
			fullRange: b.Range(),
			body:      b.Body,
		}
		switch b.Type {
		case "locals":
			for name, a := range b.Body.Attributes {
				list = append(list,
					declaration{root: "local", name: name, path: path, at: a.NameRange, fullRange: a.SrcRange})
			}
			continue
		case "variable":
			d.root = "var"
		}
		list = append(list, d)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].fullRange.Start.Byte < list[j].fullRange.Start.Byte })
	return list
}

// find returns the declaration that a reference names.
func (s *server) find(dir string, parts []string) (declaration, bool) {
	if len(parts) < 2 {
		return declaration{}, false
	}
	name := parts[1]
	if parts[0] == "data" && len(parts) > 2 {
		name += "." + parts[2]
	}
	for _, d := range s.index(dir) {
		if d.root == parts[0] && d.name == name {
			return d, true
		}
	}
	return declaration{}, false
}
