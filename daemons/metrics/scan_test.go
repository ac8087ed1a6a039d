package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func scanAll(text string) ([]string, error) {
	s := newScanner()
	s.reset(strings.NewReader(text))
	var out []string
	for l := (line{}); ; {
		switch err := s.next(&l); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		}
		out = append(out, fmt.Sprintf("%d %s/%s/%s %g %d", l.series, l.namespace, l.pod, l.container, l.value,
			l.millis))
	}
}

func TestTheScannerReadsOnlyNeededSeries(t *testing.T) {
	for text, want := range map[string]string{
		"node_cpu_usage_seconds_total 12.5 1700000000000\n": "1 // 12.5 1700000000000",
		"node_memory_working_set_bytes 1.048576e+06\n":      "2 // 1.048576e+06 0",

		"# TYPE node_cpu_usage_seconds_total counter\n\n": "",
		"node_cpu_usage_seconds_total_more 1\nup 1\n":     "",

		`container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"} 3 4`:                           "3 n/p/c 3 4",
		`container_memory_working_set_bytes{pod="p", other="x" ,container="c",namespace="n",}` + "\t3\t4 \r\n": "4 n/p/c 3 4",
		`container_start_time_seconds{container="a\"\\\nb"} 1`:                                                 "5 //a\"\\\nb 1 0",
		`container_start_time_seconds{container="}"} 1`:                                                        "5 //} 1 0",
	} {
		got, err := scanAll(text)
		if err != nil || strings.Join(got, ";") != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestTheScannerRejectsInvalidLines(t *testing.T) {
	for text, want := range map[string]error{
		"node_cpu_usage_seconds_total\n":                                         errNumber,
		"node_cpu_usage_seconds_total x\n":                                       errNumber,
		"node_cpu_usage_seconds_total NaN\n":                                     errNumber,
		"node_cpu_usage_seconds_total +Inf\n":                                    errNumber,
		"node_cpu_usage_seconds_total -1\n":                                      errNumber,
		"node_cpu_usage_seconds_total 1 -1\n":                                    errNumber,
		"node_cpu_usage_seconds_total 1 1.5\n":                                   errNumber,
		"node_cpu_usage_seconds_total 1 1 1\n":                                   errSyntax,
		"node_cpu_usage_seconds_total " + strings.Repeat("1", maxNumber+1):       errNumber,
		`container_cpu_usage_seconds_total{container="c"`:                        errSyntax,
		`container_cpu_usage_seconds_total{container=c} 1`:                       errSyntax,
		`container_cpu_usage_seconds_total{container="c\t"} 1`:                   errSyntax,
		`container_cpu_usage_seconds_total{container="c\`:                        errSyntax,
		`container_cpu_usage_seconds_total{container} 1`:                         errSyntax,
		"up{x=\"" + strings.Repeat("x", maxLine) + "\"} 1":                       errLineTooLong,
		strings.Repeat("up 1\n", maxAnswer/5) + "node_cpu_usage_seconds_total 1": errAnswerTooLong,
	} {
		if _, err := scanAll(text); !errors.Is(err, want) {
			t.Errorf("%.60q: %v, want %v", text, err, want)
		}
	}
}

func TestScanningALineDoesNotAllocate(t *testing.T) {
	text := []byte(
		strings.Repeat(
			`container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"} 3.25e+03 1700000000000`+"\nup 1\n",
			1000,
		),
	)
	s, in := newScanner(), bytes.NewReader(nil)
	var l line
	n := testing.AllocsPerRun(10, func() {
		in.Reset(text)
		s.reset(in)
		for s.next(&l) == nil {
		}
	})
	if n > 1 {
		t.Errorf("%v allocations for 2000 lines", n)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("# HELP x y\nnode_cpu_usage_seconds_total 12.5 1700000000000\nnode_memory_working_set_bytes 1e6\n" +
		"container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} 3 4\n"))
	f.Add([]byte(`container_start_time_seconds{container="c\"\\\n",namespace="n",pod="p"} 1`))
	f.Add([]byte("node_cpu_usage_seconds_total 9e18 9223372036854775807\nnode_memory_working_set_bytes 9e300"))
	pods := []*Pod{pod("n", "p", "u", "c")}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parseAnswer(newScanner(), bytes.NewReader(text), pods)
		if err != nil {
			return
		}
		if len(a.pods) != 1 || len(a.pods["n/p"].containers) != 1 {
			t.Fatalf("an answer made pods or containers: %+v", a)
		}
		one := (*State)(nil).next(a, pointAt(0), interval)
		for _, s := range []*State{one, one.next(a, pointAt(15), interval)} {
			pairs := []Pair{s.Node}
			for _, c := range s.Pods["n/p"].Containers {
				pairs = append(pairs, c.Pair)
			}
			for _, p := range pairs {
				if u, ok := p.Usage(); ok && (u.NanoCPUs < 0 || u.Memory < 0 || u.Window <= 0) {
					t.Fatalf("%+v of %+v", u, p)
				}
			}
		}
	})
}
