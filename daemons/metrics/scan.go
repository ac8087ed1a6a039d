package metrics

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Limits of a kubelet's answer. A node has at most some thousand containers, with three lines each.
const (
	maxAnswer = 16 << 20 // bytes
	maxLine   = 16 << 10 // bytes; labels are Kubernetes names of a few hundred bytes
	maxNumber = 32       // bytes; strconv parses such numbers without allocating
)

var (
	errAnswerTooLong = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	errLineTooLong   = fmt.Errorf("a line is longer than %d bytes", maxLine)
)

// series is the metric of a line.
type series int

const (
	otherSeries series = iota // not needed
	nodeCPU
	nodeMemory
	containerCPU
	containerMemory
	containerStart
)

// seriesOf returns the series of a metric name. Comparing with literals does not allocate.
func seriesOf(name []byte) series {
	switch string(name) {
	case "node_cpu_usage_seconds_total":
		return nodeCPU
	case "node_memory_working_set_bytes":
		return nodeMemory
	case "container_cpu_usage_seconds_total":
		return containerCPU
	case "container_memory_working_set_bytes":
		return containerMemory
	case "container_start_time_seconds":
		return containerStart
	}
	return otherSeries
}

// line is one sample of a series. Its names are valid until the next call of scanner.next.
type line struct {
	series                    series
	namespace, pod, container []byte
	value                     float64
	millis                    int64 // milliseconds since 1970; 0 if the line has no time
}

// scanner reads the Prometheus text format line by line. It does not allocate per line.
type scanner struct {
	in      *bufio.Reader
	limited *io.LimitedReader
}

func newScanner() *scanner {
	s := &scanner{limited: &io.LimitedReader{}}
	s.in = bufio.NewReaderSize(s.limited, maxLine)
	return s
}

func (s *scanner) reset(r io.Reader) {
	s.limited.R, s.limited.N = r, maxAnswer+1
	s.in.Reset(s.limited)
}

// next reads the next sample of a needed series. It returns io.EOF after the last one.
func (s *scanner) next(l *line) error {
	for {
		text, err := s.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return errLineTooLong
		case s.limited.N <= 0:
			return errAnswerTooLong
		case err != nil && (!errors.Is(err, io.EOF) || len(text) == 0):
			return err
		}
		name, rest := cutName(bytes.TrimSpace(text))
		*l = line{series: seriesOf(name)}
		if l.series == otherSeries { // including comments
			continue
		}
		return l.parse(rest)
	}
}

// cutName splits a line after the metric name.
func cutName(text []byte) (name, rest []byte) {
	for i, c := range text {
		if c == '{' || c == ' ' || c == '\t' {
			return text[:i], text[i:]
		}
	}
	return text, nil
}

// parse parses the rest of a line: labels, a value, and optionally a time.
func (l *line) parse(rest []byte) error {
	var err error
	if len(rest) > 0 && rest[0] == '{' {
		if rest, err = l.labels(rest[1:]); err != nil {
			return err
		}
	}
	text, rest := cutWord(rest)
	if len(text) > maxNumber {
		return errNumber
	}
	if l.value, err = strconv.ParseFloat(string(text), 64); err != nil || math.IsNaN(l.value) ||
		math.IsInf(l.value, 0) ||
		l.value < 0 {
		return errNumber
	}
	if text, rest = cutWord(rest); len(text) > 0 {
		if len(text) > maxNumber {
			return errNumber
		}
		if l.millis, err = strconv.ParseInt(string(text), 10, 64); err != nil || l.millis < 0 {
			return errNumber
		}
	}
	if text, _ = cutWord(rest); len(text) > 0 {
		return errSyntax
	}
	return nil
}

var (
	errSyntax = errors.New("a line is not in the format of Prometheus")
	errNumber = errors.New("a line has no number that can be")
)

// cutWord splits off the first word.
func cutWord(text []byte) (word, rest []byte) {
	text = bytes.TrimLeft(text, " \t")
	if i := bytes.IndexAny(text, " \t"); i >= 0 {
		return text[:i], text[i:]
	}
	return text, nil
}

// labels parses the labels that identify the container, and returns the text after the closing brace.
func (l *line) labels(rest []byte) ([]byte, error) {
	for {
		rest = bytes.TrimLeft(rest, " \t,")
		if len(rest) > 0 && rest[0] == '}' {
			return rest[1:], nil
		}
		equals := bytes.IndexByte(rest, '=')
		if equals < 0 {
			return nil, errSyntax
		}
		name := bytes.TrimRight(rest[:equals], " \t")
		rest = bytes.TrimLeft(rest[equals+1:], " \t")
		if len(rest) == 0 || rest[0] != '"' {
			return nil, errSyntax
		}
		value, behind, err := unquote(rest[1:])
		if err != nil {
			return nil, err
		}
		rest = behind
		switch string(name) {
		case "namespace":
			l.namespace = value
		case "pod":
			l.pod = value
		case "container":
			l.container = value
		}
	}
}

// unquote parses a value up to its closing quote. It resolves escapes in place.
func unquote(text []byte) (value, rest []byte, err error) {
	to := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			return text[:to], text[i+1:], nil
		case c == '\\':
			if i++; i == len(text) {
				return nil, nil, errSyntax
			}
			switch c = text[i]; c {
			case 'n':
				c = '\n'
			case '\\', '"':
			default:
				return nil, nil, errSyntax
			}
		}
		text[to] = c
		to++
	}
	return nil, nil, errSyntax
}
