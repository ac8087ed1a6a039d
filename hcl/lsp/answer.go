package lsp

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"clusterctl/hcl/block"
	"clusterctl/hcl/load"
)

// describe returns the meaning of the word at a position.
func describe(s *server, at documentPosition) any {
	parts, from, to := referenceAt(at.text, at.offset, true)
	word := at.text[from:to]
	if word == "" {
		return nil
	}
	text := ""
	frames, expression := bracketsAt(at.text, from)
	switch {
	case expression && len(parts) == 1:
		if call, meaning := load.FunctionMeaning(word); call != "" {
			text = "`" + call + "`\n\n" + meaning
		}
	case expression:
		if d, ok := s.find(filepath.Dir(at.path), parts); ok {
			_, doc := block.Fields(map[string]string{"var": "variable", "local": "locals"}[d.root], nil)
			if names, more := block.Fields(d.root, strings.Split(d.name, ".")); len(names) > 0 {
				doc = more
			}
			text = fmt.Sprintf("`%s`, declared in %s:%d\n\n%s", d, filepath.Base(d.path), d.at.Start.Line, doc)
		}
	case len(frames) == 0:
		if _, doc := block.Fields(word, labelsAfter(at.text, to)); doc != "" {
			text = "**" + word + "**\n\n" + doc
		}
	default:
		fields := fieldsAt(frames)
		if i := slices.IndexFunc(fields, func(f block.Field) bool { return f.Name == word }); i >= 0 {
			text = fieldTitle(fields[i]) + "\n\n" + fields[i].Doc
		}
	}
	if text == "" {
		return nil
	}
	return hover{markup{"markdown", text}, rangeOf(at.text, from, to)}
}

// labelsAfter returns the labels of a block whose type ends at a position.
func labelsAfter(text string, at int) (labels []string) {
	line, _, _ := strings.Cut(text[at:], "\n")
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			labels = append(labels, part)
		}
	}
	return labels
}

// define returns where the name at a position is declared. The result is a list, because some clients accept nothing
// else.
func define(s *server, at documentPosition) any {
	parts, _, to := referenceAt(at.text, at.offset, true)
	dir := filepath.Dir(at.path)
	if len(parts) > 2 && parts[0] == "module" { // an output of a module
		if d, ok := s.find(dir, parts[:2]); ok {
			if folder := moduleFolder(d); folder != "" {
				if inner, ok := s.find(folder, []string{"output", parts[2]}); ok {
					return []location{s.locate(inner)}
				}
			}
		}
	}
	if d, ok := s.find(dir, parts); ok {
		return []location{s.locate(d)}
	}
	for _, d := range s.declarations(at.path) { // the source of a module
		if folder := moduleFolder(d); folder != "" && d.body.Attributes["source"].SrcRange.Start.Byte <= at.offset &&
			to <= d.body.Attributes["source"].SrcRange.End.Byte {
			if inner := s.index(folder); len(inner) > 0 {
				return []location{s.locate(inner[0])}
			}
		}
	}
	return nil
}

func (s *server) locate(d declaration) location {
	return location{uriOf(d.path), s.rangeIn(d.path, d.at)}
}

// rangeIn converts a range of a file to the editor's units.
func (s *server) rangeIn(path string, r hcl.Range) textRange {
	if text, ok := s.texts[path]; ok {
		return rangeOf(text, r.Start.Byte, r.End.Byte)
	}
	return textRange{position{r.Start.Line - 1, r.Start.Column - 1}, position{r.End.Line - 1, r.End.Column - 1}}
}

// symbols returns the declarations of a document.
func symbols(s *server, at documentPosition) any {
	list := []symbol{}
	for _, d := range s.declarations(at.path) {
		kind := 5 // SymbolKind Class
		if d.root == "var" || d.root == "local" {
			kind = 13 // SymbolKind Variable
		}
		name := d.String()
		if d.name == "" {
			name = d.root
		}
		list = append(list, symbol{name, kind, s.rangeIn(at.path, d.fullRange), s.rangeIn(at.path, d.at)})
	}
	return list
}

// format returns the edits that format a document, or nil if it has syntax errors.
func format(_ *server, at documentPosition) any {
	if _, diags := hclsyntax.ParseConfig([]byte(at.text), at.path, hcl.InitialPos); diags.HasErrors() {
		return nil
	}
	out := string(hclwrite.Format([]byte(at.text)))
	if out == at.text {
		return []edit{}
	}
	return []edit{{rangeOf(at.text, 0, len(at.text)), out}}
}
