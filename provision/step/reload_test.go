package step_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/step"
)

// A change of a file that a server reloads by itself restarts nothing. It counts as applied when the server reports
// that it uses the file.
// Proves P02.
func TestReloadedFilesAreInUse(t *testing.T) {
	h := &hostfake.Host{}
	s := &step.AwaitReload{Path: "/etc/a.yaml", URL: "https://10.0.0.1:6443/readyz/a-config", Unit: "kube-apiserver"}
	check := func(w *step.Walk, want string) {
		t.Helper()
		c, err := s.Check(t.Context(), h, w)
		if err != nil || want == "" && c.Action+c.Note != "" || !strings.Contains(c.Note, want) {
			t.Errorf("%+v %v, want %q", c, err, want)
		}
	}
	h.AnswerErrors = map[string]error{s.URL: errors.New("it answers 500")}
	check(&step.Walk{}, "") // the file does not exist yet
	if err := h.WriteFile(s.Path, strings.NewReader("a"), 0o600, 0, 0); err != nil {
		t.Fatal(err)
	}
	check(&step.Walk{}, "it answers 500")
	h.AnswerErrors = nil
	check(&step.Walk{}, "")
	w := &step.Walk{}
	w.Touch(s.Path)
	check(w, "kube-apiserver reads it by itself")
	if err := s.Apply(t.Context(), h, w); err != nil {
		t.Error(err)
	}
}

// A server that answers that it cannot use a file is not asked as long as one that does not answer yet.
func TestARefusedFileIsReportedEarly(t *testing.T) {
	s := &step.AwaitReload{Path: "/etc/a.yaml", URL: "https://10.0.0.1:6443/readyz/a-config", Unit: "kube-apiserver"}
	h := &hostfake.Host{AnswerErrors: map[string]error{s.URL: fmt.Errorf("ask: %w", host.StatusError(500))}}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	err := s.Apply(ctx, h, &step.Walk{})
	if !errors.Is(err, host.StatusError(500)) || !strings.Contains(err.Error(), "journalctl -u kube-apiserver") {
		t.Error(err)
	}
	if ctx.Err() != nil {
		t.Error("it was asked until the time was over")
	}
}
