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
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"clusterctl/hcl/data"
)

func inDir(dir string) func(string) string {
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

func digest(path string) (string, error) {
	if err := data.Regular(path); err != nil {
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

// glob finds files; a folder stands for the YAML files in it.
func glob(dir string) func(string) ([]string, error) {
	return func(pattern string) ([]string, error) {
		matches, err := filepath.Glob(inDir(dir)(pattern))
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
			for _, ext := range []string{"*.yaml", "*.yml", "*.json"} {
				inside, err := filepath.Glob(filepath.Join(m, ext))
				if err != nil {
					return nil, err
				}
				list = append(list, inside...)
			}
		}
		sort.Strings(list)
		return list, nil
	}
}

// readYAML returns the objects of a file of YAML documents, lists taken apart.
func readYAML(path string) ([]map[string]any, error) {
	text, err := data.File(path)
	if err != nil {
		return nil, err
	}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
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
		list, err := takeApart(o)
		if err != nil {
			return nil, fmt.Errorf("read %s, document %d: %w", path, n, err)
		}
		objects = append(objects, list...)
	}
}

func takeApart(o map[string]any) ([]map[string]any, error) {
	if items, ok := o["items"].([]any); ok && o["kind"] == "List" {
		var list []map[string]any
		for _, item := range items {
			m, ok := item.(map[string]any)
			if !ok {
				return nil, errors.New("a List's items are objects")
			}
			inner, err := takeApart(m)
			if err != nil {
				return nil, err
			}
			list = append(list, inner...)
		}
		return list, nil
	}
	metadata, _ := o["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	version, _ := o["apiVersion"].(string)
	kind, _ := o["kind"].(string)
	if name == "" || version == "" || kind == "" {
		return nil, errors.New("an object needs apiVersion, kind and metadata.name")
	}
	return []map[string]any{o}, nil
}
