package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
)

// journal returns an entry as journalctl prints it.
func journal(second int, message string) string {
	return fmt.Sprintf(`{"__REALTIME_TIMESTAMP":"%d","MESSAGE":%q}`, time.Unix(int64(second), 0).UnixMicro(), message) +
		"\n"
}

func TestTheLogOfASourceHasItsLinesOfAllMachines(t *testing.T) {
	journals := map[string]string{
		"one": journal(1, `time=x level=INFO msg="v1 ConfigMap default/a" daemon=gitops-controller `+
			`source=kube-system/platform reason=Applied`) +
			journal(4, `level=WARN msg="a=b source=kube-system/other \"x\"" source=kube-system/platform err="it fails"`) +
			journal(5, `level=INFO msg=x source=kube-system/platform2`) + "not JSON\n" +
			`{"__REALTIME_TIMESTAMP":"6","MESSAGE":[1,2]}` + "\n",
		"two": journal(2, `level=INFO msg=leading lease=gitops-controller`) +
			journal(3, "level=INFO msg=\"a\\x1b[31m\" source=kube-system/platform"),
	}
	reader := logReader{source: "kube-system/platform", since: time.Unix(1, 0),
		run: func(_ context.Context, m config.Machine, command string, out io.Writer) error {
			if !strings.Contains(command, "journalctl --no-pager -q -u gitops-controller.service") ||
				!strings.Contains(command, "--since=@1") || strings.Contains(command, " -f") {
				t.Errorf("the command is %s", command)
			}
			if journals[m.Name] == "" {
				return errors.New("permission denied")
			}
			_, err := io.WriteString(out, journals[m.Name])
			return err
		}}
	for name, row := range map[string]struct {
		json bool
		want string
	}{
		"text": {false, `1970-01-01T00:00:01Z one INFO  Applied: v1 ConfigMap default/a
1970-01-01T00:00:03Z two INFO  a\x1b[31m
1970-01-01T00:00:04Z one WARN  a=b source=kube-system/other "x": it fails
`}, "json": {true, `{"time":"1970-01-01T00:00:01Z","machine":"one","level":"INFO","message":"v1 ConfigMap default/a","reason":"Applied"}
{"time":"1970-01-01T00:00:03Z","machine":"two","level":"INFO","message":"a\u001b[31m"}
{"time":"1970-01-01T00:00:04Z","machine":"one","level":"WARN","message":"a=b source=kube-system/other \"x\"","error":"it fails"}
`}} {
		var out, warnings strings.Builder
		err := reader.read(t.Context(), []config.Machine{{Name: "one"}, {Name: "two"}, {Name: "three"}}, &warnings,
			func(l sourceLog) error { return l.print(&out, row.json) })
		if err != nil {
			t.Fatal(err)
		}
		if out.String() != row.want {
			t.Errorf("%s: got:\n%s\nwant:\n%s", name, out.String(), row.want)
		}
		if warnings.String() != "Warning: the journal of three is not read: permission denied\n" {
			t.Errorf("the warnings are %q", warnings.String())
		}
	}
	err := reader.read(t.Context(), []config.Machine{{Name: "three"}}, io.Discard, func(sourceLog) error { return nil })
	if err == nil {
		t.Error("a log without any journal is no error")
	}
}

func TestFollowingALogEndsWithItsReader(t *testing.T) {
	reader := logReader{source: "kube-system/platform", follow: true,
		run: func(ctx context.Context, _ config.Machine, command string, out io.Writer) error {
			if !strings.Contains(command, " -f -n all") {
				t.Errorf("the command is %s", command)
			}
			for second := 1; ctx.Err() == nil; second++ {
				if _, err := io.WriteString(out, journal(second, "msg=x source=kube-system/platform")); err != nil {
					return err
				}
			}
			return ctx.Err()
		}}
	ctx, cancel := context.WithCancel(t.Context())
	shown := 0
	err := reader.read(ctx, []config.Machine{{Name: "one"}, {Name: "two"}}, io.Discard, func(sourceLog) error {
		if shown++; shown == 10 {
			cancel()
		}
		return nil
	})
	if err != nil || shown < 10 {
		t.Errorf("%d lines are shown, %v", shown, err)
	}
}
