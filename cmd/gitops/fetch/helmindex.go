package fetch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	nodes "sigs.k8s.io/yaml/goyaml.v3"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Bounds of a Helm repository's index.
const (
	maxIndex         = 64 << 20 // bytes
	maxJSONIndex     = 16 << 20 // bytes of an index that is written as JSON
	maxIndexLine     = 256 << 10
	maxIndexEntry    = 256 << 10 // bytes of one version of the selected chart
	maxIndexVersions = 20_000    // versions of the selected chart
)

// chartVersion is a version of a chart in an index.
type chartVersion struct {
	Version string   `json:"version" yaml:"version"`
	URLs    []string `json:"urls" yaml:"urls"`
	Digest  string   `json:"digest" yaml:"digest"`
}

// chartSelector selects the latest version of a chart that satisfies a constraint.
type chartSelector struct {
	chart      string
	constraint gitsource.Constraint
	seen       int // versions of the chart
	best       chartVersion
}

// add considers a version of the chart.
func (s *chartSelector) add(v chartVersion) error {
	if s.seen++; s.seen > maxIndexVersions {
		return fmt.Errorf("chart %q has more than %d versions", s.chart, maxIndexVersions)
	}
	if v.Digest != "" && !strings.Contains(v.Digest, ":") {
		v.Digest = digestPrefix + v.Digest
	}
	list := []string{v.Version}
	if s.best.Version != "" {
		list = append(list, s.best.Version)
	}
	if latest, ok := s.constraint.Latest(list); ok && latest == v.Version && s.best.Version != v.Version {
		s.best = v
	}
	return nil
}

// readIndex reads an index. It keeps only the entries of the selected chart, and decodes them one by one, so that its
// memory does not grow with the index.
func readIndex(r io.Reader, s *chartSelector) error {
	limited := &limitedReader{r: r, left: maxIndex, err: fmt.Errorf("it has more than %d bytes", maxIndex)}
	in := bufio.NewReaderSize(limited, maxIndexLine)
	if first, err := in.Peek(1); err == nil && first[0] == '{' {
		limited.left, limited.err = maxJSONIndex, fmt.Errorf("it has more than %d bytes of JSON", maxJSONIndex)
		return readJSONIndex(json.NewDecoder(in), s)
	}
	x := &indexReader{selector: s, indent: -1, dash: -1}
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("it has a line of more than %d bytes", maxIndexLine)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) > 0 {
			if err := x.line(bytes.TrimRight(line, "\r\n")); err != nil {
				return err
			}
		}
		if err != nil {
			return x.finish()
		}
	}
}

// readJSONIndex reads an index that is written as JSON.
func readJSONIndex(in *json.Decoder, s *chartSelector) error {
	damaged := func(err error) error { return fmt.Errorf("it is damaged: %w", err) }
	if _, err := in.Token(); err != nil {
		return damaged(err)
	}
	var skipped json.RawMessage
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return damaged(err)
		}
		if name != "entries" {
			if err := in.Decode(&skipped); err != nil {
				return damaged(err)
			}
			continue
		}
		if open, err := in.Token(); err != nil || open != json.Delim('{') {
			return errors.New("its field entries is not an object")
		}
		for in.More() {
			chart, err := in.Token()
			if err != nil {
				return damaged(err)
			}
			if chart != s.chart {
				if err := in.Decode(&skipped); err != nil {
					return damaged(err)
				}
				continue
			}
			if open, err := in.Token(); err != nil || open != json.Delim('[') {
				return fmt.Errorf("the entry of chart %q is not a list", s.chart)
			}
			for in.More() {
				var v chartVersion
				if err := in.Decode(&v); err != nil {
					return damaged(err)
				}
				if err := s.add(v); err != nil {
					return err
				}
			}
			if _, err := in.Token(); err != nil {
				return damaged(err)
			}
		}
		if _, err := in.Token(); err != nil {
			return damaged(err)
		}
	}
	return nil
}

// indexReader reads an index in the block style of YAML, in which lines that continue a value are indented more than
// its key.
type indexReader struct {
	selector *chartSelector
	inside   bool // of the field entries
	indent   int  // of the names of charts; -1 before the first one
	selected bool // the lines belong to the selected chart
	found    bool
	dash     int // indentation of the selected chart's list; -1 before it
	entry    bytes.Buffer
}

// line reads a line.
func (x *indexReader) line(text []byte) error {
	content := bytes.TrimLeft(text, " ")
	indent := len(text) - len(content)
	if len(content) == 0 || content[0] == '#' {
		if x.selected && x.entry.Len() > 0 {
			return x.keep(text)
		}
		return nil
	}
	isItem := content[0] == '-' && (len(content) == 1 || content[1] == ' ')
	switch {
	case !x.inside:
		name, rest, ok := bytes.Cut(content, []byte(":"))
		if indent != 0 || !ok || string(name) != "entries" {
			return nil
		}
		rest, _, _ = bytes.Cut(rest, []byte("#"))
		if rest = bytes.TrimSpace(rest); len(rest) > 0 && string(rest) != "{}" {
			return errors.New("its field entries is not written in YAML's block style")
		}
		x.inside = len(rest) == 0
		return nil
	case indent == 0 && !isItem: // the next field
		x.inside = false
		return x.endChart()
	case x.indent < 0:
		x.indent = indent
	}
	if indent < x.indent {
		return errors.New("its indentation is not that of YAML")
	}
	if indent == x.indent && !isItem {
		return x.beginChart(content)
	}
	if !x.selected {
		return nil
	}
	if x.dash < 0 {
		if !isItem {
			return fmt.Errorf("the entry of chart %q is not a list", x.selector.chart)
		}
		x.dash = indent
	}
	if isItem && indent == x.dash {
		if err := x.endEntry(); err != nil {
			return err
		}
	}
	return x.keep(text)
}

// keep adds a line to the entry of a version.
func (x *indexReader) keep(line []byte) error {
	if x.entry.Len()+len(line) > maxIndexEntry {
		return fmt.Errorf("a version of chart %q has more than %d bytes", x.selector.chart, maxIndexEntry)
	}
	x.entry.Write(line)
	x.entry.WriteByte('\n')
	return nil
}

// beginChart reads the line with the name of a chart.
func (x *indexReader) beginChart(content []byte) error {
	if err := x.endChart(); err != nil {
		return err
	}
	i := bytes.LastIndexByte(content, ':')
	if at := bytes.Index(content, []byte(": ")); at >= 0 {
		i = at
	}
	if i < 0 {
		return errors.New("it has a line in entries that is not the name of a chart")
	}
	if name := strings.Trim(strings.TrimSpace(string(content[:i])), `"'`); name != x.selector.chart {
		return nil
	}
	rest, _, _ := bytes.Cut(content[i+1:], []byte("#"))
	switch rest = bytes.TrimSpace(rest); {
	case x.found:
		return fmt.Errorf("it has chart %q twice", x.selector.chart)
	case string(rest) == "[]":
	case len(rest) > 0:
		return fmt.Errorf("the entry of chart %q is not written in YAML's block style", x.selector.chart)
	default:
		x.selected = true
	}
	x.found = true
	return nil
}

// endChart ends the entry of a chart.
func (x *indexReader) endChart() error {
	err := x.endEntry()
	x.selected, x.dash = false, -1
	return err
}

// endEntry decodes the entry of a version.
func (x *indexReader) endEntry() error {
	if x.entry.Len() == 0 {
		return nil
	}
	defer x.entry.Reset()
	at := fmt.Sprintf("a version of chart %q", x.selector.chart)
	if err := gitops.CheckYAML(at, x.entry.Bytes()); err != nil {
		return err
	}
	var list []chartVersion
	if err := nodes.Unmarshal(x.entry.Bytes(), &list); err != nil || len(list) != 1 {
		return fmt.Errorf("%s is damaged", at)
	}
	return x.selector.add(list[0])
}

// finish ends the index.
func (x *indexReader) finish() error { return x.endChart() }
