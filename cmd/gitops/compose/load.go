package compose

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/compose-spec/compose-go/v2/consts"
	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v4"
	"golang.org/x/sys/unix"
)

// Bounds of a project, in bytes.
const (
	maxFile = 8 << 20 // of a Compose file
	maxText = 1 << 20 // of a config, a secret, or a file with variables or labels
)

// options are the arguments of a conversion.
type options struct {
	names     []string // of the files, as they are reported
	files     []string // absolute paths of the same files
	profiles  []string
	useEnv    bool
	hostPaths bool
}

// source is a Compose project in the form that the Compose specification resolves it to: short forms are written out,
// variables are replaced, and files are merged. Variables and labels of files are not part of it yet.
type source struct {
	options
	model    map[string]any
	environ  map[string]string
	disabled []string // paths of services and jobs whose profiles are not active
	roots    []*yaml.Node
	secrets  map[string]string // variables of the .env file, which errors do not quote
	unset    []string          // variables that the project uses, and nothing sets
}

// loadProject loads a project. The variables for interpolation come from the .env file, and from the process if useEnv.
func loadProject(ctx context.Context, o options) (*source, error) {
	s := &source{options: o}
	for i, file := range o.files {
		text, err := readFile(file, maxFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.names[i], err)
		}
		root := &yaml.Node{}
		if yaml.Unmarshal(text, root) != nil {
			root = &yaml.Node{} // the error of the loader is reported
		}
		s.roots = append(s.roots, root)
	}
	dir := filepath.Dir(o.files[0])
	s.environ = map[string]string{}
	if o.useEnv {
		for _, variable := range os.Environ() {
			name, value, _ := strings.Cut(variable, "=")
			s.environ[name] = value
		}
	}
	if path := filepath.Join(dir, dotenv.DotEnv); exists(path) {
		variables, err := s.readVariables(path, "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		s.secrets = variables
		for name, value := range variables {
			if _, ok := s.environ[name]; !ok {
				s.environ[name] = value
			}
		}
	}
	details := types.ConfigDetails{WorkingDir: dir, ConfigFiles: types.ToConfigFiles(o.files), Environment: s.environ}
	set := func(options *loader.Options) {
		options.Profiles, options.SkipResolveEnvironment, options.SkipResolveLabels = o.profiles, true, true
		options.ResourceLoaders = []loader.ResourceLoader{remote{}}
		name, isExplicit := s.environ[consts.ComposeProjectName]
		if !isExplicit {
			name = loader.NormalizeProjectName(filepath.Base(dir))
		}
		options.SetProjectName(name, isExplicit)
	}
	var err error
	if s.model, err = loader.LoadModelWithContext(ctx, details, set); err != nil {
		return nil, s.locate(err)
	}
	// The project is not converted itself: it does not distinguish empty and absent. Its references are checked.
	project, err := loader.ModelToProject(copyOf(s.model).(map[string]any),
		loader.ToOptions(&details, []func(*loader.Options){set}), details)
	if err != nil {
		return nil, s.locate(err)
	}
	for _, name := range slices.Sorted(maps.Keys(project.DisabledServices)) {
		s.disabled = append(s.disabled, "services."+name)
	}
	for _, name := range slices.Sorted(maps.Keys(project.DisabledJobs)) {
		s.disabled = append(s.disabled, "jobs."+name)
	}
	return s, nil
}

// copyOf returns a deep copy of a value.
func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[name] = copyOf(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = copyOf(e)
		}
		return out
	}
	return v
}

// remote refuses files that are not on this machine.
type remote struct{}

var remotePath = regexp.MustCompile(`^[a-z0-9+.-]+://|^git@|^oci:|\.git(#|$)`)

// Accept reports whether a path is that of a file on another machine.
func (remote) Accept(path string) bool { return remotePath.MatchString(path) }

// Load returns an error.
func (remote) Load(_ context.Context, path string) (string, error) {
	return "", fmt.Errorf("%q is not a file of this machine; nothing is fetched, so name a local copy", path)
}

// Dir returns the folder of a path.
func (remote) Dir(path string) string { return filepath.Dir(path) }

var (
	errorLine      = regexp.MustCompile(`\bline (\d+)`)
	errorAttribute = regexp.MustCompile(`[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\[\d+\])+`)
	variablesError = regexp.MustCompile(`failed to read (\S+): line (\d+):`)
)

// locate adds the file and line to an error of the loader if it names an attribute.
func (s *source) locate(err error) error {
	text := err.Error()
	if m := variablesError.FindStringSubmatch(text); m != nil { // the rest of the error quotes the line
		return fmt.Errorf("%s:%s: the line does not set a variable", m[1], m[2])
	}
	text = strings.ReplaceAll(text, "false schema", "is not an attribute of the Compose specification")
	for _, name := range slices.Sorted(maps.Keys(s.secrets)) {
		if value := s.secrets[name]; len(value) > 3 {
			text = strings.ReplaceAll(text, value, "${"+name+"}")
		}
	}
	for i, file := range s.files { // the reported name instead of the absolute path
		text = strings.ReplaceAll(text, file, s.names[i])
	}
	if m := errorLine.FindStringSubmatch(text); m != nil && len(s.files) == 1 {
		return fmt.Errorf("%s:%s: %s", s.names[0], m[1], text)
	}
	for _, attribute := range errorAttribute.FindAllString(text, -1) {
		path := splitPath(attribute)
		for n := len(path); n > 1; n-- {
			if file, line := s.find(path[:n]); line > 0 {
				return fmt.Errorf("%s:%d: %s", file, line, text)
			}
		}
	}
	return fmt.Errorf("%s: %s", s.names[0], text)
}

// splitPath returns the elements of an attribute's path, such as services, web, ports, [0].
func splitPath(attribute string) []string {
	path := strings.Split(strings.ReplaceAll(attribute, "[", ".["), ".")
	for i, element := range path {
		if _, err := strconv.Atoi(element); err == nil && i > 0 {
			path[i] = "[" + element + "]"
		}
	}
	return path
}

// find returns the file and line of an attribute, and 0 if no file has it. Later files override earlier ones.
func (s *source) find(path []string) (string, int) {
	for i, root := range slices.Backward(s.roots) {
		if line := findLine(root, path, 0); line > 0 {
			return s.names[i], line
		}
	}
	return "", 0
}

// findLine returns the line of an attribute below a node, or 0.
func findLine(n *yaml.Node, path []string, depth int) int {
	for ; depth < 100 && (n.Kind == yaml.AliasNode || n.Kind == yaml.DocumentNode && len(n.Content) > 0); depth++ {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		} else {
			n = n.Content[0]
		}
	}
	if len(path) == 0 {
		return n.Line
	}
	var index int
	if _, err := fmt.Sscanf(path[0], "[%d]", &index); err == nil && n.Kind == yaml.SequenceNode {
		if index < 0 || index >= len(n.Content) {
			return 0
		}
		return findLine(n.Content[index], path[1:], depth+1)
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		switch {
		case n.Content[i].Value != path[0]:
		case len(path) == 1:
			return n.Content[i].Line
		default:
			return findLine(n.Content[i+1], path[1:], depth+1)
		}
	}
	return 0
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// readFile returns the content of a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", filepath.Base(path))
	}
	var text bytes.Buffer
	if n, err := io.Copy(&text, io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	} else if n > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", filepath.Base(path), limit)
	}
	return text.Bytes(), nil
}

// readVariables returns the variables in a file. Its errors quote nothing of the file.
func (s *source) readVariables(path, format string) (map[string]string, error) {
	text, err := readFile(path, maxText)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%s is not text", filepath.Base(path))
	}
	variables := map[string]string{}
	lookup := func(name string) (string, bool) {
		v, ok := s.environ[name]
		return v, ok
	}
	if format == "raw" { // without quotes and replacements
		for line := range strings.Lines(string(text)) {
			name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
			if ok && !strings.HasPrefix(name, "#") {
				variables[name] = value
			}
		}
		return variables, nil
	}
	err = dotenv.ParseWithFormat(bytes.NewReader(text), path, variables, lookup, format)
	if err == nil {
		return variables, nil
	}
	if m := errorLine.FindStringSubmatch(err.Error()); m != nil {
		return nil, fmt.Errorf("line %s of %s does not set a variable", m[1], filepath.Base(path))
	}
	if strings.HasPrefix(err.Error(), "unsupported env_file format") {
		return nil, err
	}
	return nil, fmt.Errorf("%s has a line that does not set a variable", filepath.Base(path))
}
