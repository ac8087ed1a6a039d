// Command corpus writes objects of every kind that are each wrong in one way, with the answers of Kubernetes to them.
// The answers follow from what Kubernetes publishes: its types, their decoder, the markers in their documentation, the
// schema of server-side apply, and the rules of metadata. Each rule is one function. documented.go contains what the
// documentation of a kind states beyond its schema. The command sends nothing to our server and does not read what our
// server publishes. Package conformance compares our server's answers with the data.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := writeData("testdata"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func writeData(folder string) error {
	files, err := generateData(folder)
	if err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(folder, "schema", name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generateData returns the files of the data by name. There is one file for each group.
func generateData(folder string) (map[string][]byte, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	d, err := readDocComments()
	if err != nil {
		return nil, err
	}
	kinds, err := readKinds(folder, s, d)
	if err != nil {
		return nil, err
	}
	p, files := newUpstreamCode(s), map[string][]byte{
		"managed.yaml":  []byte(fileHeader),
		"metadata.yaml": append([]byte(fileHeader), encodeLines("every kind", wrongMetadata())...),
	}
	for _, k := range kinds {
		if !k.IsAnswerOnly {
			a, err := p.fieldOwners(k)
			if err != nil {
				return nil, err
			}
			files["managed.yaml"] = append(files["managed.yaml"],
				fmt.Sprintf("- {\"of\": %q, %s\n", k, toJSON(a)[1:])...)
		}
		var all []wrongObject
		for _, r := range wrongRules {
			all = append(all, r.make(p, d, k)...)
		}
		group := k.gvk.Group
		if group == "" {
			group = "core"
		}
		name := strings.TrimSuffix(group, ".k8s.io") + ".yaml"
		if files[name] == nil {
			files[name] = []byte(fileHeader)
		}
		files[name] = append(files[name], encodeLines(k.String(), all)...)
	}
	return files, nil
}

const fileHeader = "# Written by go generate ./tests/suites/conformance from what Kubernetes publishes of its types, " +
	"and not from this server.\n"

// encodeLines returns a kind's part of a file, which is JSON in YAML's flow style, with a line for each object.
func encodeLines(of string, all []wrongObject) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "- of: %s\n  wrong:\n", of)
	for _, w := range all {
		out.WriteString("  - " + toJSON(w) + "\n")
	}
	return out.Bytes()
}

// toJSON returns a value as JSON without HTML escapes, which is easier to read.
func toJSON(v any) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("what came from JSON has none: %v", err))
	}
	return strings.TrimSpace(out.String())
}
