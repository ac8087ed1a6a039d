package main

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A package without a suite, and a suite without a target, would never run.
func TestSuitesHaveATargetAndSomethingToRun(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range suites {
		if seen[s.name] {
			t.Errorf("%s: two suites have this name", s.name)
		}
		seen[s.name] = true
		if len(s.targets) == 0 || s.about == "" {
			t.Errorf("%s: it has no target or no description", s.name)
		}
		for _, target := range s.targets {
			if !slices.Contains(targets, target) {
				t.Errorf("%s: no target is called %s", s.name, target)
			}
		}
		if (s.command == nil) == (s.packages == nil) {
			t.Errorf("%s: a suite is either a command or packages", s.name)
		}
		if s.needs != "" {
			needed := slices.IndexFunc(suites, func(o suite) bool { return o.name == s.needs })
			if needed < 0 {
				t.Errorf("%s: it needs %s, which is no suite", s.name, s.needs)
			} else if !slices.Equal(suites[needed].targets, s.targets) {
				t.Errorf("%s: it needs %s, which is not in the same targets", s.name, s.needs)
			}
		}
		if s.packages != nil && s.timeout == "" {
			t.Errorf("%s: its tests have no timeout", s.name)
		}
	}
	for _, target := range targets {
		for _, s := range suites {
			if slices.Equal(s.packages, []string{restPackages}) && slices.Contains(s.targets, target) {
				seen[target+" rest"] = true
			}
		}
		if !seen[target+" rest"] {
			t.Errorf("%s does not run the packages that no suite names", target)
		}
	}
}

// Every package in a suite of `test` is also in `all`.
func TestTargetAllIncludesTargetTest(t *testing.T) {
	ran := map[string][]string{}
	for _, s := range suites {
		for _, target := range s.targets {
			ran[target] = append(ran[target], s.packages...)
		}
	}
	for _, p := range ran[testTarget] {
		if !slices.Contains(ran[allTarget], p) {
			t.Errorf("%s is in test and not in all", p)
		}
	}
}

// A package that a suite names is not among the rest, so `test` has to name it, too.
func TestTargetTestIncludesTargetAll(t *testing.T) {
	only := map[string]string{ // with reasons
		"./tests/suites/prometheus": "it waits for alerts to fire",
	}
	ran := map[string]bool{}
	for _, s := range suites {
		for _, p := range s.packages {
			ran[p] = ran[p] || slices.Contains(s.targets, testTarget) || s.includedInRest
		}
	}
	for p, got := range ran {
		if reason := only[p]; got == (reason != "") {
			t.Errorf("%s: test runs it: %v; the reason why it does not: %q", p, got, reason)
		}
	}
}

func TestChooseRefusesUnknownNames(t *testing.T) {
	for _, c := range []struct{ target, only, want, refused string }{
		{target: testTarget, only: "form,lint", want: "lint form"},
		{target: testTarget, only: "flows", want: "race-bundle flows"},
		{target: testTarget, only: "form,forms", refused: "no suite called forms"},
		{target: checkTarget, only: "form", refused: "no suite called form"},
		{target: "tests", refused: `no target is called "tests"`},
	} {
		chosen, err := chooseSuites(c.target, c.only)
		var names []string
		for _, s := range chosen {
			names = append(names, s.name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s, %s: chose %q, want %q", c.target, c.only, got, c.want)
		}
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s, %s: %v, want an error with %q", c.target, c.only, err, c.refused)
		}
	}
}

// The first background suite ends when the second has started, which needs the place of the suite that is not in the
// background.
func TestBackgroundSuitesUsePlacesThatNoOtherSuiteWaitsFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	started := filepath.Join(t.TempDir(), "started")
	shell := func(text string) []string { return []string{"sh", "-c", text, "sh", started} }
	r := &runner{root: t.TempDir(), logs: t.TempDir(), parallelJobs: 1}
	results, err := r.run(ctx, []suite{
		{name: "front", command: shell("true")},
		{name: "first", isBackground: true, command: shell(`until [ -e "$1" ]; do sleep 0.01; done`)},
		{name: "second", isBackground: true, command: shell(`touch "$1"`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.hasFailed() {
			t.Errorf("%s: %v", r.name, r.errs)
		}
	}
}

func TestEventsCountOnlyLeafTests(t *testing.T) {
	const stream = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"output","Package":"p","Test":"TestA/one","Output":"it is wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA/one"}
{"Action":"run","Package":"p","Test":"TestA/two"}
{"Action":"pass","Package":"p","Test":"TestA/two"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestD/one"}
{"Action":"fail","Package":"p","Test":"TestD"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestC","Output":"panic: the end\n"}
not an event
{"Action":"fail","Package":"p"}
`
	var events tests
	var log strings.Builder
	events.read(strings.NewReader(stream), &log)
	if want := (counts{passed: 2, failed: 2, skipped: 1}); events.counts != want {
		t.Errorf("counted %+v, want %+v", events.counts, want)
	}
	failures := events.failures()
	for _, want := range []string{"--- p TestA/one\nit is wrong\n", "--- p TestC\npanic: the end\n"} {
		if !strings.Contains(failures, want) {
			t.Errorf("the failures lack %q:\n%s", want, failures)
		}
	}
	if !strings.Contains(log.String(), "not an event") {
		t.Errorf("the log lacks what is no event: %s", log.String())
	}
}

// A package's cached line comes after the events of its tests, which are those of the earlier run.
func TestCachedTestsAreCounted(t *testing.T) {
	const stream = `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"ok  \tp\t(cached)\n"}
{"Action":"pass","Package":"p"}
{"Action":"output","Package":"q","Test":"TestC","Output":"ok  \tq\t(cached)\n"}
{"Action":"pass","Package":"q","Test":"TestC"}
{"Action":"output","Package":"q","Output":"ok  \tq\t0.1s\n"}
{"Action":"pass","Package":"q"}
`
	var events tests
	events.read(strings.NewReader(stream), io.Discard)
	if want := (counts{passed: 3, cached: 2}); events.counts != want {
		t.Errorf("counted %+v, want %+v", events.counts, want)
	}
}

func TestLongOutputOfFailedTestsIsCut(t *testing.T) {
	var events tests
	line := strings.Repeat("x", 1000)
	stream := strings.Repeat(`{"Action":"output","Package":"p","Test":"TestA","Output":"`+line+`\n"}`+"\n",
		100) + `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n"
	events.read(strings.NewReader(stream), io.Discard)
	if got := len(events.failures()); got > maxOutput+100 {
		t.Errorf("%d bytes are printed of a failed test, at most %d are wanted", got, maxOutput)
	}
}

func TestTablesEndWithTheSums(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := result{suite: suite{name: "a"}}
	a.add(outcome{counts: counts{passed: 3, cached: 2, skipped: 1}, began: start, ended: start.Add(time.Minute),
		processor: 2 * time.Minute})
	a.add(outcome{counts: counts{passed: 1}, began: start.Add(time.Minute), ended: start.Add(3 * time.Minute),
		processor: 3 * time.Minute})
	b := result{suite: suite{name: "b"}}
	b.add(
		outcome{
			job:    job{name: "b"},
			counts: counts{failed: 2},
			began:  start,
			ended:  start.Add(90 * time.Second),
			err:    io.EOF,
		},
	)
	got := formatTable([]result{a, b}, 3*time.Minute)
	for _, want := range []string{
		"    a       4       2       0        1      3.0          5.0      ok",
		"    b       0       0       2        0      1.5          0.0    FAIL",
		"  all       4       2       2        1      3.0          5.0",
		"\n4 passed, 2 of them cached, 2 failed, 1 skipped\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}
