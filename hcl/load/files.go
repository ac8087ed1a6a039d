package load

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"clusterctl/hcl/data"
)

// place resolves the paths in expressions of a directory.
type place struct {
	dir string
	// root, if not empty, is the directory that no path leaves: an absolute path begins there.
	root string
}

// path returns the path of a file.
func (p place) path(text string) string {
	if p.root == "" {
		return pathIn(p.dir)(text)
	}
	if !filepath.IsAbs(text) {
		text = filepath.Join(p.shown(p.dir), text)
	}
	return filepath.Join(p.root, filepath.Join(string(filepath.Separator), text))
}

// shown returns how a path below root is written in expressions.
func (p place) shown(path string) string {
	rel, err := filepath.Rel(p.root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return string(filepath.Separator)
	}
	return filepath.Join(string(filepath.Separator), rel)
}

// match returns the files and folders below base that match a pattern.
func (p place) match(base, pattern string) ([]string, error) {
	if p.root == "" {
		return data.MatchPattern(base, pattern)
	}
	leaves := fmt.Errorf("the pattern %q leads out of the repository", pattern)
	if strings.Contains(pattern, "..") {
		return nil, leaves
	}
	list, err := data.MatchPattern(base, pattern)
	for _, path := range list { // braces can make other patterns
		if rel, err := filepath.Rel(p.root, path); err != nil || !filepath.IsLocal(rel) {
			return nil, leaves
		}
	}
	return list, err
}

func pathIn(dir string) func(string) string {
	return func(path string) string {
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			if home, err := os.UserHomeDir(); err == nil {
				return filepath.Join(home, rest)
			}
		}
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
}

func fileDigest(path string) (string, error) {
	if err := data.CheckRegular(path); err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// globIn returns a function that finds the files that match a pattern, which is relative to the place. A directory
// stands for the YAML and JSON files in it. Paths that expressions can put before a pattern (path.module, path.root,
// path.cwd and the home directory) are taken literally.
func globIn(in place, root string) func(string) ([]string, error) {
	return func(pattern string) ([]string, error) {
		var base, rest string
		if in.root != "" {
			base, rest = in.root, strings.TrimPrefix(in.shown(in.path(pattern)), string(filepath.Separator))
		} else {
			base, rest = splitPatternPath(in.path(pattern), pattern, in.dir, root)
		}
		matches, err := in.match(base, rest)
		if err != nil {
			return nil, err
		}
		var list []string
		for _, m := range matches {
			if info, err := os.Stat(m); err != nil {
				return nil, err
			} else if !info.IsDir() {
				list = append(list, m)
				continue
			}
			for _, suffix := range []string{".yaml", ".yml", ".json"} {
				inside, err := data.ListWithSuffix(m, suffix)
				if err != nil {
					return nil, err
				}
				list = append(list, inside...)
			}
		}
		sort.Strings(list)
		return slices.Compact(list), nil
	}
}

// splitPatternPath splits the path of a pattern into the directory at which it starts and the pattern below that.
func splitPatternPath(place, pattern, dir, root string) (base, rest string) {
	if place == filepath.Join(dir, pattern) && !filepath.IsAbs(pattern) {
		return dir, pattern
	}
	home, _ := os.UserHomeDir()
	base, rest = string(filepath.Separator), place
	for _, folder := range []string{dir, root, ".", home} {
		absolute, err := filepath.Abs(folder)
		if folder == "" || err != nil || len(absolute) < len(base) {
			continue
		}
		if below, ok := strings.CutPrefix(place, absolute); ok && (below == "" || below[0] == filepath.Separator) {
			base, rest = absolute, below
		}
	}
	return base, rest
}

// readYAML returns the objects in a file of YAML documents. Lists are replaced by their items.
func readYAML(path string) ([]map[string]any, error) {
	text, err := data.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data.WithoutBOM(text))))
	var objects []map[string]any
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		var o map[string]any
		if err := sigsyaml.UnmarshalStrict(doc, &o); err != nil {
			return nil, fmt.Errorf("read %s, document %d: %w", path, n, err)
		}
		if len(o) == 0 {
			continue
		}
		list, err := splitList(o)
		if err != nil {
			return nil, fmt.Errorf("read %s, document %d: %w", path, n, err)
		}
		objects = append(objects, list...)
	}
}

// splitList returns the objects of a document: the object itself, or the items of a List or of a typed list such as
// ConfigMapList. Items of a typed list may omit apiVersion and kind.
func splitList(o map[string]any) ([]map[string]any, error) {
	metadata, _ := o["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	version, _ := o["apiVersion"].(string)
	kind, _ := o["kind"].(string)
	of, isList := strings.CutSuffix(kind, "List")
	items, hasItems := o["items"]
	if !isList || !hasItems || name != "" {
		if name == "" || version == "" || kind == "" {
			return nil, errors.New("an object needs apiVersion, kind and metadata.name")
		}
		return []map[string]any{o}, nil
	}
	elements, ok := items.([]any)
	if !ok && items != nil {
		return nil, fmt.Errorf("items of a %s must be a list of objects", kind)
	}
	var list []map[string]any
	for i, item := range elements {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("items of a %s must be a list of objects: element %d is not an object", kind, i+1)
		}
		if of != "" {
			if m["apiVersion"] == nil {
				m["apiVersion"] = version
			}
			if m["kind"] == nil {
				m["kind"] = of
			}
		}
		inner, err := splitList(m)
		if err != nil {
			return nil, fmt.Errorf("element %d of a %s: %w", i+1, kind, err)
		}
		list = append(list, inner...)
	}
	return list, nil
}
