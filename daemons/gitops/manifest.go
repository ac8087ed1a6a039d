package gitops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
	nodes "sigs.k8s.io/yaml/goyaml.v3"
)

// isManifest reports whether a file name is that of a manifest.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))
}

// Manifests is the renderer of plain YAML and JSON.
type Manifests struct{}

// Render returns the objects of all manifests below the source's folder. It skips files and folders whose names begin
// with a dot.
func (Manifests) Render(ctx context.Context, s *Source, from Snapshot, _ Reader) ([]Object, error) {
	root := Folder(s.Spec.Path)
	if err := checkFolder(from.Files, root); err != nil {
		return nil, err
	}
	budget := NewBudget()
	var objects []Object
	err := fs.WalkDir(from.Files, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && name != root
		switch {
		case d.IsDir() && hidden:
			return fs.SkipDir
		case d.IsDir() || hidden || !isManifest(name):
			return nil
		}
		text, err := budget.ReadFile(from.Files, name)
		if err != nil {
			return err
		}
		list, err := ParseManifest(name, text)
		objects = append(objects, list...)
		if len(objects) > MaxObjects {
			return fmt.Errorf("the folder has more than %d objects", MaxObjects)
		}
		return err
	})
	return objects, err
}

// Folder returns the path of a folder for package fs.
func Folder(p string) string {
	if p = strings.Trim(path.Clean("/"+p), "/"); p == "" {
		return "."
	}
	return p
}

// checkFolder returns an error if the source's folder does not exist.
func checkFolder(files fs.FS, root string) error {
	info, err := fs.Stat(files, root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the repository has no folder %q; see spec.path", root)
	case err != nil:
		return fmt.Errorf("read the folder %q: %w", root, err)
	case !info.IsDir():
		return fmt.Errorf("%q is not a folder; see spec.path", root)
	}
	return nil
}

// Budget limits how much a renderer reads.
type Budget struct {
	files    int // left
	maxFiles int
	bytes    int64 // left
}

// NewBudget returns the budget of one rendering.
func NewBudget() *Budget { return &Budget{files: MaxFiles, maxFiles: MaxFiles, bytes: MaxBytes} }

// WithFiles returns the budget with another number of files.
func (b *Budget) WithFiles(n int) *Budget {
	b.files, b.maxFiles = n, n
	return b
}

// ReadFile reads a file. Symbolic links and other special files are errors.
func (b *Budget) ReadFile(files fs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("%s: symbolic links are not followed; write the file itself", name)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: it is not a regular file", name)
	case info.Size() > MaxFileBytes:
		return nil, fmt.Errorf("%s: it has %d bytes, and at most %d are read", name, info.Size(), MaxFileBytes)
	}
	if b.files--; b.files < 0 {
		return nil, fmt.Errorf("%s: more than %d files are read", name, b.maxFiles)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > MaxFileBytes {
		return nil, fmt.Errorf("%s: it has more than %d bytes", name, MaxFileBytes)
	}
	if b.bytes -= int64(len(text)); b.bytes < 0 {
		return nil, fmt.Errorf("%s: the files that are read have more than %d bytes", name, MaxBytes)
	}
	return text, nil
}

// maxDense is the number of bytes in a document that can begin a value. A value takes a few hundred bytes of memory,
// and an object of 1 MiB has about a tenth of that number.
const maxDense = 500_000

// dense counts the bytes of a text that can begin a value: separators, indicators and ends of lines.
func dense(text []byte) (n int) {
	for _, b := range text {
		switch b {
		case ',', ':', '[', '{', '-', '?', '\n':
			n++
		}
	}
	return n
}

// checkDense returns an error if a document that begins at a line of a file would take too much memory.
func checkDense(name string, line, n int) error {
	if n > maxDense {
		return fmt.Errorf("%s:%d: the document has more than %d lines and values; divide it into several", name, line,
			maxDense)
	}
	return nil
}

// CheckYAML returns an error if a document of a manifest has too many values, or if the documents of a file are much
// larger after their aliases are expanded. It accepts text that is not YAML.
func CheckYAML(name string, text []byte) error {
	if isManifest(name) && len(text) > maxDense {
		line, from, n := 1, 1, 0
		for part := range bytes.Lines(text) {
			if n += dense(part); separatorPattern.Match(bytes.TrimRight(part, "\r\n")) {
				from, n = line+1, 0
			}
			if err := checkDense(name, from, n); err != nil {
				return err
			}
			line++
		}
	}
	if !bytes.ContainsRune(text, '*') || !bytes.ContainsRune(text, '&') { // it has no aliases
		return nil
	}
	total := 0
	for documents := nodes.NewDecoder(bytes.NewReader(text)); ; {
		var node nodes.Node
		if err := documents.Decode(&node); err != nil {
			return nil
		}
		if total += expandedSize(&node); total > MaxFileBytes {
			return fmt.Errorf("%s: it has more than %d bytes after its aliases are expanded", name, MaxFileBytes)
		}
	}
}

// separatorPattern matches the line between two YAML documents.
var separatorPattern = regexp.MustCompile(`^---(?:[ \t].*)?$`)

// ParseManifest parses the YAML documents of a file. Errors name the file and the line.
func ParseManifest(name string, text []byte) ([]Object, error) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	var objects []Object
	line, from := 1, 1
	var document bytes.Buffer
	flush := func() error {
		defer document.Reset()
		list, err := parseDocument(name, from, document.Bytes())
		objects = append(objects, list...)
		if len(objects) > MaxObjects {
			return fmt.Errorf("%s:%d: the file has more than %d objects", name, from, MaxObjects)
		}
		return err
	}
	for part := range bytes.Lines(text) {
		if separatorPattern.Match(bytes.TrimRight(part, "\r\n")) {
			if err := flush(); err != nil {
				return nil, err
			}
			from = line + 1
		} else {
			document.Write(part)
		}
		line++
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return objects, nil
}

// linePattern matches the line in an error of the YAML library, which counts from the beginning of the document.
var linePattern = regexp.MustCompile(`line (\d+): `)

// parseDocument parses one YAML document that begins at a line of a file.
func parseDocument(name string, line int, text []byte) ([]Object, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	fail := func(err error) error {
		at := line
		message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
		message = strings.TrimPrefix(message, "unmarshal errors:\n  ")
		if m := linePattern.FindStringSubmatchIndex(message); m != nil {
			var n int
			if _, err := fmt.Sscan(message[m[2]:m[3]], &n); err == nil {
				at, message = line+n-1, message[:m[0]]+message[m[1]:]
			}
		}
		return fmt.Errorf("%s:%d: %s", name, at, message)
	}
	if err := checkDense(name, line, dense(text)); err != nil {
		return nil, err
	}
	var node nodes.Node
	if err := nodes.Unmarshal(text, &node); err != nil {
		return nil, fail(err)
	}
	if size := expandedSize(&node); size > MaxFileBytes {
		return nil, fmt.Errorf("%s:%d: the document has more than %d bytes after its aliases are expanded", name, line,
			MaxFileBytes)
	}
	if len(node.Content) > 0 && node.Content[0].Line > 1 {
		line += node.Content[0].Line - 1 // comments before the object
		text = bytes.Join(bytes.SplitAfter(text, []byte("\n"))[node.Content[0].Line-1:], nil)
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fail(err)
	}
	return parseObject(name, line, data)
}

// expandedSize returns about how long a document is with each alias replaced by its anchor's value, at most a little
// more than MaxFileBytes.
func expandedSize(document *nodes.Node) int {
	sizes := map[*nodes.Node]int{}
	var size func(n *nodes.Node) int
	size = func(n *nodes.Node) int {
		if s, ok := sizes[n]; ok {
			return s
		}
		sizes[n] = 0 // the decoder refuses a node that contains itself
		s := len(n.Value) + 2
		if n.Kind == nodes.AliasNode {
			s = size(n.Alias)
		}
		for _, part := range n.Content {
			s = min(s+size(part)+1, MaxFileBytes+1)
		}
		sizes[n] = s
		return s
	}
	return size(document)
}

// parseObject decodes an object, or the items of a list.
func parseObject(name string, line int, data []byte) ([]Object, error) {
	data = bytes.TrimSpace(data)
	if bytes.Equal(data, []byte("null")) {
		return nil, nil
	}
	if len(data) == 0 || data[0] != '{' {
		return nil, fmt.Errorf("%s:%d: the document is not an object with apiVersion and kind", name, line)
	}
	var head struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &head); err == nil && head.Kind == "List" {
		if len(head.Items) > MaxObjects {
			return nil, fmt.Errorf("%s:%d: the list has more than %d objects", name, line, MaxObjects)
		}
		var objects []Object
		for _, item := range head.Items {
			o, err := newObject(name, line, item)
			if err != nil {
				return nil, err
			}
			objects = append(objects, o)
		}
		return objects, nil
	}
	o, err := newObject(name, line, data)
	return []Object{o}, err
}

// newObject decodes one object from JSON.
func newObject(name string, line int, data []byte) (Object, error) {
	o := &unstructured.Unstructured{}
	if len(data) > MaxObject {
		return Object{}, fmt.Errorf("%s:%d: the object has %d bytes, and at most %d are allowed", name, line, len(data),
			MaxObject)
	}
	if err := json.Unmarshal(data, &o.Object); err != nil {
		return Object{}, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	version, _ := o.Object["apiVersion"].(string)
	kind, _ := o.Object["kind"].(string)
	metadata, _ := o.Object["metadata"].(map[string]any)
	objectName, _ := metadata["name"].(string)
	if version == "" || kind == "" || objectName == "" {
		return Object{}, fmt.Errorf("%s:%d: an object needs apiVersion, kind and metadata.name", name, line)
	}
	if err := o.UnmarshalJSON(data); err != nil {
		return Object{}, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	return Object{Unstructured: o, File: name, Line: line}, nil
}
