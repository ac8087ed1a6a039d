package apiserver

import (
	"log/slog"
	"strings"
	"testing"

	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store/memory"
)

// A server with a full cache is not ready while other start tasks have not begun.
func TestServerIsNotReadyBeforeStartTasks(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	server, err := New(Options{Storage: OpenStorage(s, "", kinds.All(), env.Log), Env: env})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.cache.Run(t.Context()) // ends with the test
	}()
	t.Cleanup(func() { <-done })
	if err := server.cache.WaitFor(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := env.Health.Err(true); err == nil ||
		!strings.Contains(err.Error(), "the definitions of custom resources are not served yet") {
		t.Errorf("ready but for: %v", err)
	}
}
