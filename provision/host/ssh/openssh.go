package ssh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// setting is a value in a configuration file, with its position.
type setting struct {
	words    []string // without quotes
	position string   // file:line
}

func (s setting) firstWord() string {
	if len(s.words) == 0 {
		return ""
	}
	return s.words[0]
}

// configReader collects the options of ssh_config(5) files for one host, with OpenSSH's rules: the first value counts,
// but identities and certificates add up. The files are not read with ssh -G because that costs a process per machine,
// does not report positions, and needs OpenSSH to be installed. Tests compare the results of both.
type configReader struct {
	name   string // the name as given, before HostName is applied
	user   identity
	values map[string]setting

	identities, certificates []setting

	isFinalPass    bool // this is the second pass, for Match final
	needsFinalPass bool
	ignored        []string // patterns of IgnoreUnknown
	run            func(command string) bool
}

// maxIncludes is the maximum depth of includes, as in OpenSSH.
const maxIncludes = 16

// matchTimeout limits a command of Match exec.
const matchTimeout = 15 * time.Second

func newConfigReader(name string, of identity) *configReader {
	return &configReader{name: name, user: of, values: map[string]setting{}, run: func(command string) bool {
		ctx, cancel := context.WithTimeout(context.Background(), matchTimeout)
		defer cancel()
		return exec.CommandContext(ctx, of.shell(), "-c", command).Run() == nil
	}}
}

// read reads the user's and then the system's configuration. It reads both again if a Match final or canonical occurs.
func (r *configReader) read(f Files) error {
	for {
		if err := r.readFile(f.User, true, true, 0); err != nil {
			return err
		}
		if err := r.readFile(f.System, false, true, 0); err != nil {
			return err
		}
		if r.isFinalPass || !r.needsFinalPass {
			return nil
		}
		host, err := r.hostName()
		if err != nil {
			return err
		}
		r.isFinalPass = true
		r.values["hostname"] = setting{words: []string{strings.ReplaceAll(host, "%", "%%")},
			position: r.values["hostname"].position}
	}
}

// readFile reads one file. If applies is false, the file is included from a block that does not apply, and nothing in
// it applies.
func (r *configReader) readFile(path string, users, applies bool, depth int) error {
	if depth > maxIncludes {
		return fmt.Errorf("read %s: more than %d files include each other", path, maxIncludes)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	if users {
		if err := checkTrusted(f); err != nil {
			return err
		}
	}
	never := !applies
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		at := fmt.Sprintf("%s:%d", path, n)
		key, rest := splitKeyword(lines.Text())
		if key == "" {
			continue
		}
		words, err := splitWords(rest)
		if err != nil && !wholeLineOptions[key] {
			return fmt.Errorf("%s: %s: %w", at, key, err)
		}
		if len(words) == 0 && !wholeLineOptions[key] {
			return fmt.Errorf("%s: %s has no value", at, key)
		}
		switch key {
		case "host":
			applies = !never && matchesList(words, r.name)
		case "match":
			if applies, err = r.match(words, at, never); err != nil {
				return err
			}
		case "include":
			if err := r.include(words, path, users, applies, depth); err != nil {
				return err
			}
		case "ignoreunknown":
			if applies && len(r.ignored) == 0 {
				r.ignored = strings.Split(strings.ToLower(words[0]), ",")
			}
		default:
			if err := r.storeSetting(key, rest, words, at, applies); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// checkTrusted refuses a file that other users may write, because commands in it are executed.
func checkTrusted(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if owner != 0 && int(owner) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s may be written by others, and ssh would not read it either: chmod 600 %s", f.Name(),
			f.Name())
	}
	return nil
}

func (r *configReader) include(words []string, from string, users, applies bool, depth int) error {
	for _, pattern := range words {
		switch {
		case users && (pattern == "~" || strings.HasPrefix(pattern, "~/")):
			pattern = escapePattern(r.user.home) + pattern[1:]
		case filepath.IsAbs(pattern):
		case users:
			pattern = escapePattern(filepath.Join(r.user.home, ".ssh")) + "/" + pattern
		default:
			pattern = filepath.Join("/etc/ssh", pattern)
		}
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("%s: include %q: %w", from, pattern, err)
		}
		slices.Sort(paths)
		for _, path := range paths {
			if err := r.readFile(path, users, applies, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// escapePattern escapes a path so that it matches only itself as a pattern.
func escapePattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// storeSetting stores an option's value, unless an earlier value exists.
func (r *configReader) storeSetting(key, rest string, words []string, at string, applies bool) error {
	if other, ok := renamedOptions[key]; ok {
		key = other
	}
	s := setting{words: words, position: at}
	if wholeLineOptions[key] {
		s.words = []string{rest}
	}
	if !supportedOptions[key] && !ignoredOptions[key] {
		if _, ok := unsafeOptions[key]; !ok && !matchesList(r.ignored, key) {
			return fmt.Errorf("%s: %s is not an option of ssh_config, or of a newer OpenSSH than clusterctl knows. "+
				"IgnoreUnknown %s above it has it left out", at, key, key)
		}
	}
	_, exists := r.values[key]
	switch {
	case !applies || ignoredOptions[key]:
	case key == "identityfile":
		r.identities = appendSetting(r.identities, s)
	case key == "certificatefile":
		r.certificates = appendSetting(r.certificates, s)
	case exists:
	case key == "proxycommand" && len(r.values["proxyjump"].words) > 0,
		key == "proxyjump" && len(r.values["proxycommand"].words) > 0:
	default:
		if err := rejectUnsafe(key, s); err != nil {
			return err
		}
		r.values[key] = s
	}
	return nil
}

func appendSetting(list []setting, s setting) []setting {
	if slices.ContainsFunc(list, func(o setting) bool { return o.firstWord() == s.firstWord() }) {
		return list
	}
	return append(list, s)
}

// splitKeyword splits a line into the option's name and the rest.
func splitKeyword(line string) (key, rest string) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", ""
	}
	if line[0] == '"' {
		if end := strings.IndexByte(line[1:], '"'); end >= 0 {
			key, rest = line[1:1+end], line[end+2:]
		}
	} else if i := strings.IndexAny(line, " \t="); i >= 0 {
		key, rest = line[:i], line[i:]
	} else {
		key = line
	}
	rest = strings.TrimLeft(rest, " \t")
	if after, ok := strings.CutPrefix(rest, "="); ok {
		rest = strings.TrimLeft(after, " \t")
	}
	return strings.ToLower(key), rest
}

// splitWords splits the rest of a line into words as OpenSSH does: with quotes and backslashes, up to a comment.
func splitWords(rest string) ([]string, error) {
	var words []string
	for i := 0; i < len(rest); {
		if c := rest[i]; c == ' ' || c == '\t' {
			i++
			continue
		} else if c == '#' {
			break
		}
		var word []byte
		quote := byte(0)
		for ; i < len(rest); i++ {
			c := rest[i]
			escaped := c == '\\' && i+1 < len(rest) &&
				(strings.IndexByte(`"'\`, rest[i+1]) >= 0 || quote == 0 && rest[i+1] == ' ')
			switch {
			case escaped:
				i++
				word = append(word, rest[i])
			case quote == 0 && (c == ' ' || c == '\t'):
				goto done
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case quote != 0 && c == quote:
				quote = 0
			default:
				word = append(word, c)
			}
		}
	done:
		if quote != 0 {
			return nil, errors.New("a quote is not closed")
		}
		words = append(words, string(word))
	}
	return words, nil
}
