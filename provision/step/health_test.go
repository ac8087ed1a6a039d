package step_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/step"
)

// partitionedHost is a machine that some servers do not answer.
type partitionedHost struct {
	host.Host
	silentURL string
}

func (a *partitionedHost) CheckURL(ctx context.Context, url string, _ host.Client) error {
	if !strings.Contains(url, a.silentURL) {
		return nil
	}
	<-ctx.Done()
	return errors.New("it does not answer")
}

func TestSilentMachinesAreCheckedInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		changes, err := step.Check(t.Context(), &partitionedHost{&hostfake.Host{}, "off"}, []step.Step{
			&step.ServerHealth{
				Name: "a",
				URL:  "https://off-a",
			}, &step.ServerHealth{Name: "b", URL: "https://b"}, &step.ServerHealth{Name: "c", URL: "https://off-c"},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"it does not answer", "", "it does not answer"} {
			if changes[i].Note != want {
				t.Errorf("%d: %q, want %q", i, changes[i].Note, want)
			}
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
