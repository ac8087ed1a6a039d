package data

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// maxAlternatives limits the number of patterns to which the braces of a pattern expand.
const maxAlternatives = 1000

// ListWithSuffix returns the paths of the entries of a folder whose names end with suffix, sorted. Folders are left
// out.
func ListWithSuffix(dir, suffix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), suffix) {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list, nil
}

// MatchPattern returns the sorted paths of the files and folders below base that match pattern. base is a literal path.
// Patterns have the syntax of Terraform's fileset: *, ?, [class], [^class], {a,b}, ** for any number of folders, and \
// to escape a special character. A part of the pattern also matches an entry with exactly that name, so the path of an
// existing file always matches the file. ** does not follow symbolic links to folders.
func MatchPattern(base, pattern string) ([]string, error) {
	patterns, err := expandBraces(pattern)
	if err != nil {
		return nil, err
	}
	w := patternWalk{found: map[string]bool{}, visited: map[visit]bool{}}
	for i, p := range patterns {
		parts, err := parsePattern(p)
		if err != nil {
			path := filepath.Join(base, pattern)
			if _, statErr := os.Lstat(path); statErr == nil {
				return []string{path}, nil
			}
			return nil, fmt.Errorf("%q: %w", pattern, err)
		}
		if err := w.match(i, base, parts); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(w.found)), nil
}

// patternPart is the part of a pattern between two slashes.
type patternPart struct {
	text        string         // as written, which may be the name of an entry
	name        string         // without backslashes, if there are no special characters
	re          *regexp.Regexp // nil if there are no special characters except backslashes
	isRecursive bool           // the part is **
}

func parsePattern(pattern string) (list []patternPart, err error) {
	for _, text := range strings.Split(filepath.ToSlash(pattern), "/") {
		switch {
		case text == "" || text == ".":
			continue
		case text == "**":
			list = append(list, patternPart{text: text, isRecursive: true})
			continue
		}
		p := patternPart{text: text}
		if strings.ContainsAny(text, "*?[") {
			if p.re, err = partExpression(text); err != nil {
				return nil, err
			}
		} else if p.name, err = unescapePart(text); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// patternWalk collects the paths that patterns match.
type patternWalk struct {
	found   map[string]bool
	visited map[visit]bool
}

// visit is a directory with the rest of a pattern that is matched in it.
type visit struct {
	dir           string
	pattern, rest int // index of the pattern, and number of its remaining parts
}

func (w *patternWalk) match(pattern int, dir string, parts []patternPart) error {
	if len(parts) == 0 {
		w.found[dir] = true
		return nil
	}
	v := visit{dir, pattern, len(parts)}
	if w.visited[v] {
		return nil
	}
	w.visited[v] = true
	p, rest := parts[0], parts[1:]
	names := []string{p.text}
	if p.name != "" && p.name != p.text {
		names = append(names, p.name)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		_, err := os.Lstat(path)
		if err == nil {
			err = w.match(pattern, path, rest)
		} else if isNotExist(err) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	if p.isRecursive {
		if err := w.match(pattern, dir, rest); err != nil {
			return err
		}
	}
	if p.re == nil && !p.isRecursive {
		return nil
	}
	return w.entries(pattern, dir, parts)
}

// entries matches the first of parts, which has special characters, with the entries of a directory.
func (w *patternWalk) entries(pattern int, dir string, parts []patternPart) error {
	if info, err := os.Stat(dir); isNotExist(err) || err == nil && !info.IsDir() {
		return nil // files and dangling links have no entries
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	p, rest := parts[0], parts[1:]
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var err error
		switch {
		case p.isRecursive && e.IsDir():
			err = w.match(pattern, path, parts)
		case p.isRecursive && len(rest) == 0:
			w.found[path] = true
		case !p.isRecursive && p.re.MatchString(e.Name()):
			err = w.match(pattern, path, rest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isNotExist reports whether an error of the file system says that a path does not exist.
func isNotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// expandBraces returns the patterns that result from expanding the braces of a pattern, and the pattern itself.
func expandBraces(pattern string) ([]string, error) {
	done, waiting := []string{}, []string{pattern}
	for len(waiting) > 0 {
		p := waiting[0]
		waiting = waiting[1:]
		before, choices, after, ok, err := splitBraces(p)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", pattern, err)
		}
		if !ok {
			done = append(done, p)
		}
		for _, choice := range choices {
			waiting = append(waiting, before+choice+after)
		}
		if len(done)+len(waiting) > maxAlternatives {
			return nil, fmt.Errorf("%q: the braces stand for more than %d patterns", pattern, maxAlternatives)
		}
	}
	if !slices.Contains(done, pattern) {
		done = append(done, pattern)
	}
	return done, nil
}

// splitBraces splits a pattern at its first pair of braces.
func splitBraces(p string) (before string, choices []string, after string, ok bool, err error) {
	depth, start, from := 0, 0, 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '[':
			if end := classEnd(p[i:]); end > 0 {
				i += end - 1
			}
		case '{':
			if depth++; depth == 1 {
				start, from = i, i+1
			}
		case ',':
			if depth == 1 {
				choices = append(choices, p[from:i])
				from = i + 1
			}
		case '}':
			if depth == 0 {
				continue
			}
			if depth--; depth == 0 {
				return p[:start], append(choices, p[from:i]), p[i+1:], true, nil
			}
		}
	}
	if depth > 0 {
		return "", nil, "", false, errors.New("syntax error in pattern: a brace is not closed")
	}
	return "", nil, "", false, nil
}

// classEnd returns the length of the character class at the beginning of a text, or 0 if it is not closed.
func classEnd(text string) int {
	i := 1
	if i < len(text) && (text[i] == '^' || text[i] == '!') {
		i++
	}
	for first := true; i < len(text) && text[i] != '/'; first = false {
		switch {
		case text[i] == '\\':
			i++
		case text[i] == ']' && !first:
			return i + 1
		}
		i++
	}
	return 0
}

// partExpression returns the regular expression for one part of a pattern. Matching takes linear time.
func partExpression(text string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`\A(?s:`)
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteString(".")
		case '\\':
			if i++; i == len(text) {
				return nil, errors.New("syntax error in pattern: it ends with a backslash")
			}
			b.WriteString(regexp.QuoteMeta(text[i : i+1]))
		case '[':
			end := classEnd(text[i:])
			if end == 0 {
				return nil, errors.New("syntax error in pattern: a bracket is not closed")
			}
			b.WriteString(classExpression(text[i+1 : i+end-1]))
			i += end - 1
		default:
			from := i
			for i+1 < len(text) && !strings.ContainsRune(`*?\[`, rune(text[i+1])) {
				i++
			}
			b.WriteString(regexp.QuoteMeta(text[from : i+1]))
		}
	}
	b.WriteString(`)\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		return nil, errors.New("syntax error in pattern")
	}
	return re, nil
}

// classExpression returns the regular expression for the content of a pattern's brackets.
func classExpression(text string) string {
	var b strings.Builder
	b.WriteByte('[')
	if strings.HasPrefix(text, "^") || strings.HasPrefix(text, "!") {
		b.WriteByte('^')
		text = text[1:]
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteString(regexp.QuoteMeta(text[i : i+1]))
		case c == '-':
			b.WriteByte('-')
		case strings.ContainsRune(`[]^&~\`, rune(c)):
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte(']')
	return b.String()
}

// unescapePart removes the backslashes from a part without other special characters.
func unescapePart(text string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			if i++; i == len(text) {
				return "", errors.New("syntax error in pattern: it ends with a backslash")
			}
		}
		b.WriteByte(text[i])
	}
	return b.String(), nil
}
