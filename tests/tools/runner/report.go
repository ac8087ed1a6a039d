package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// counts is the number of tests by their outcome. Subtests count. A test with subtests counts only if it fails although
// none of them does.
type counts struct {
	passed, failed, skipped int
	cached                  int // those that passed in an earlier run, and whose inputs have not changed since
}

// event is one line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// tests gathers the events of one run.
type tests struct {
	counts
	failing []string // the output of failed tests

	output  map[string]*strings.Builder // of running tests, by package and test
	passes  map[string]int              // number of tests that passed, by package
	parents map[string]bool             // tests with subtests, and whether one of these failed
}

// maxOutput is how many bytes of one failed test's output are printed.
const maxOutput = 20_000

// read reads events until the stream ends, and writes the output of the tests to log.
func (t *tests) read(from io.Reader, log io.Writer) {
	t.output, t.passes, t.parents = map[string]*strings.Builder{}, map[string]int{}, map[string]bool{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case line[0] != '{' || json.Unmarshal(line, &e) != nil:
			_, _ = log.Write(line)
		default:
			t.recordEvent(e, log)
		}
		if err != nil {
			return
		}
	}
}

func (t *tests) recordEvent(e event, log io.Writer) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		_, _ = io.WriteString(log, e.Output)
		if e.Test == "" && strings.HasPrefix(e.Output, "ok ") && strings.HasSuffix(e.Output, "\t(cached)\n") {
			t.cached += t.passes[e.Package]
		}
		if t.output[key] == nil {
			t.output[key] = &strings.Builder{}
		}
		t.output[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		if at := strings.LastIndexByte(e.Test, '/'); at > 0 {
			parent := e.Package + " " + e.Test[:at]
			t.parents[parent] = t.parents[parent] || e.Action == "fail"
		}
		if e.Action == "fail" || e.Action == "build-fail" {
			t.failing = append(t.failing, t.outputOf(key))
		}
		delete(t.output, key)
		failedBelow, isParent := t.parents[key]
		if e.Test == "" || isParent && (failedBelow || e.Action != "fail") {
			return
		}
		switch e.Action {
		case "pass":
			t.passed++
			t.passes[e.Package]++
		case "fail":
			t.failed++
		case "skip":
			t.skipped++
		}
	}
}

func (t *tests) outputOf(key string) string {
	b := t.output[key]
	if b == nil {
		return ""
	}
	text := b.String()
	if len(text) > maxOutput {
		text = text[:maxOutput/2] + "\n[…]\n" + text[len(text)-maxOutput/2:]
	}
	return "--- " + strings.TrimSpace(key) + "\n" + text
}

// failures returns the output of failed tests, and of tests that had not ended.
func (t *tests) failures() string {
	var b strings.Builder
	for _, text := range t.failing {
		b.WriteString(text)
	}
	for key := range t.output {
		if strings.Contains(key, " ") {
			b.WriteString(t.outputOf(key))
		}
	}
	return b.String()
}

// add adds the outcome of a part of the suite.
func (r *result) add(o outcome) {
	r.passed += o.passed
	r.failedTests += o.counts.failed
	r.skipped += o.skipped
	r.cached += o.cached
	if r.began.IsZero() || o.began.Before(r.began) {
		r.began = o.began
	}
	if o.ended.After(r.ended) {
		r.ended = o.ended
	}
	r.processor += o.processor
	if o.err != nil {
		r.errs = append(r.errs, errors.New(o.name+": "+o.err.Error()))
	}
}

// formatTable returns the results as text; its last line has the sums.
func formatTable(results []result, took time.Duration) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nsuite\tpassed\tcached\tfailed\tskipped\tminutes\tCPU minutes\tresult\t")
	var sum counts
	var processor time.Duration
	for _, r := range results {
		verdict := "ok"
		if r.hasFailed() {
			verdict = "FAIL"
		}
		minutes := r.ended.Sub(r.began).Minutes()
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%s\t\n", r.name, r.passed, r.cached, r.failedTests,
			r.skipped, minutes, r.processor.Minutes(), verdict)
		processor += r.processor
		sum.passed += r.passed
		sum.cached += r.cached
		sum.failed += r.failedTests
		sum.skipped += r.skipped
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t\t\n", sum.passed, sum.cached, sum.failed, sum.skipped,
		took.Minutes(), processor.Minutes())
	_ = w.Flush()
	fmt.Fprintf(&b, "\n%d passed, %d of them cached, %d failed, %d skipped\n", sum.passed, sum.cached, sum.failed,
		sum.skipped)
	return b.String()
}
