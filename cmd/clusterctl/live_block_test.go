package main

import (
	"strings"
	"testing"
	"time"

	"clusterctl/provision/plan"
	"clusterctl/provision/step"
)

// renderScreen returns what a terminal shows after it has interpreted the escape sequences.
func renderScreen(text string) string {
	var lines []string
	row := 0
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			n := int(rest[0] - '0')
			row -= n
			lines, text = lines[:row], strings.TrimPrefix(rest[1:], "A\x1b[J")
			continue
		}
		line, rest, _ := strings.Cut(text, "\n")
		lines, text = append(lines, line), rest
		row++
	}
	return strings.Join(lines, "\n")
}

func TestTerminalsShowOneLinePerMachineInProgress(t *testing.T) {
	var out strings.Builder
	l := &liveBlock{w: &out, size: func() (int, int) { return 80, 24 },
		now: func() time.Time { return time.Unix(0, 0) }}
	l.show(&plan.Plan{Machines: []plan.Machine{
		{
			Address: "machine.a",
			Action:  plan.Change,
			Changes: []step.Change{{Kind: "file", Name: "/etc/x"}, {Kind: "unit", Name: "kubelet.service"}},
		},
		{
			Address: "machine.b",
			Action:  plan.Create,
			Changes: []step.Change{{Kind: "file", Name: strings.Repeat("long", 20)}},
		},
		{Address: "machine.c"},
	}})
	l.step("machine.a", "")
	l.setCurrent("machine.b", "sending etcd, 28 MB")
	close(l.stop)
	<-l.stopped
	want := "   0.0s  machine.a                    2/2  unit kubelet.service\n" +
		"   0.0s  machine.b                    sending etcd, 28 MB"
	if got := renderScreen(out.String()); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	l.finish("machine.b", "   1.0s  machine.b                    done")
	l.step("machine.a", "")
	l.rows = nil
	l.draw("end")
	if got, want := renderScreen(out.String()), "   1.0s  machine.b                    done\nend"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
