package gitops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// recordingSender is a gitops.Sender that records what it sends.
type recordingSender struct {
	mu       sync.Mutex
	sent     []string
	attempts int
	err      error
	slow     chan struct{} // if not nil, sources outside of kube-system wait until it is closed
}

// Send implements gitops.Sender.
func (r *recordingSender) Send(ctx context.Context, to gitops.Target, n gitops.Notification) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slow := r.slow; slow != nil && to.Namespace != gitsource.Namespace {
		r.mu.Unlock()
		select {
		case <-slow:
		case <-ctx.Done():
		}
		r.mu.Lock()
	}
	r.attempts++
	if string(to.Data["token"]) == "" {
		return errors.New("there is no token")
	}
	if r.err != nil {
		return r.err
	}
	revision := n.Revision
	if len(n.Commit()) > 4 {
		revision = n.Commit()[:4]
	}
	r.sent = append(r.sent, strings.Join([]string{to.Type, n.Source, revision, n.Ready, n.Reason}, " "))
	return nil
}

// fail makes the following attempts fail.
func (r *recordingSender) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// take returns what was sent since the last call, and the number of attempts.
func (r *recordingSender) take() (sent []string, attempts int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, attempts = r.sent, r.attempts
	r.sent, r.attempts = nil, 0
	return sent, attempts
}

// wantSent waits until notifications were sent, and no others.
func (w *world) wantSent(want ...string) {
	w.t.Helper()
	var got []string
	w.until(fmt.Sprintf("%q is sent", want), func() error {
		more, _ := w.sender.take()
		if got = append(got, more...); len(got) < len(want) {
			return fmt.Errorf("%q is sent", got)
		}
		return nil
	})
	for range 30 { // of the controller's clock
		w.step()
	}
	more, _ := w.sender.take()
	got = append(got, more...)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("%q is sent, want %q", got, want)
	}
}

const notifying = "interval: 10s\nnotifications:\n- {type: webhook, url: 'https://hooks.example/', secret: hook}\n"

// Proves P06.
func TestChangesOfTheReadyConditionAreSentOnce(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	first := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", notifying+"- {type: gitlab, secret: hook}\n")
	w.ready("platform", "True", "", first)
	w.until("the commit has its last status", func() error {
		w.sender.mu.Lock()
		defer w.sender.mu.Unlock()
		if !slices.Contains(w.sender.sent, "gitlab kube-system/platform "+first[:4]+" True Succeeded") {
			return fmt.Errorf("%q is sent", w.sender.sent)
		}
		return nil
	})
	early := "webhook kube-system/platform " + first[:4] + " Unknown Progressing"
	if sent, _ := w.sender.take(); slices.Contains(sent, early) {
		t.Errorf("a webhook got a state in between: %q", sent)
	}
	broken := w.repo.Commit(map[string]string{"a.yaml": "a: b: c"})
	w.ready("platform", "False", "RenderFailed", "")
	w.wantSent("webhook kube-system/platform "+broken[:4]+" False RenderFailed",
		"gitlab kube-system/platform "+broken[:4]+" False RenderFailed")
	// The server's failure is not that of a commit.
	w.repo.Fail(errors.New("unreachable"))
	w.ready("platform", "False", "FetchFailed", "")
	w.wantSent("webhook kube-system/platform  False FetchFailed")
}

func TestARestartAnnouncesNothingAgain(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", notifying)
	w.ready("platform", "True", "", commit)
	w.wantSent("webhook kube-system/platform " + commit[:4] + " True Succeeded")
	w.start()
	before := w.repo.Fetched()
	w.until("the source is reconciled again", func() error {
		if w.repo.Fetched() < before+3 {
			return errors.New("it was not fetched")
		}
		return nil
	})
	w.wantSent()
}

// A receiver that fails causes neither a flood nor a failure of the source.
func TestNotificationsThatFailAreRetriedAFewTimes(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	w.sender.fail(errors.New("unreachable"))
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", notifying)
	w.ready("platform", "True", "", commit)
	w.until("the failure is recorded", func() error {
		if len(w.recorded("NotificationFailed")) == 0 {
			return errors.New("there is no event")
		}
		return nil
	})
	if _, attempts := w.sender.take(); attempts != 6 {
		t.Errorf("%d attempts were made", attempts)
	}
	if got := w.recorded("NotificationFailed"); len(got) != 1 || strings.Contains(got[0], hookToken) {
		t.Errorf("the events are %q", got)
	}
	w.sender.fail(nil)
	next := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "two")})
	w.ready("platform", "True", "", next)
	w.wantSent("webhook kube-system/platform " + next[:4] + " True Succeeded")
}

// A source that changes all the time sends its latest state, and not each.
func TestASourceThatFlapsSendsFewNotifications(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	w.declare("platform", notifying+"retryInterval: 1s\n")
	var last string
	start := w.clock.Now()
	for i := range 20 {
		text := configMap("a", fmt.Sprint(i))
		reason := ""
		if i%2 == 0 {
			text, reason = "a: b: c", "RenderFailed"
		}
		last = w.repo.Commit(map[string]string{"a.yaml": text})
		w.declare("platform", notifying+fmt.Sprintf("retryInterval: 1s\npath: .\ntimeout: %ds\n", 100+i))
		w.ready("platform", map[bool]string{true: "False", false: "True"}[i%2 == 0], reason, "")
	}
	w.until("the last state is sent", func() error {
		w.sender.mu.Lock()
		defer w.sender.mu.Unlock()
		if n := len(w.sender.sent); n == 0 || !strings.HasSuffix(w.sender.sent[n-1], last[:4]+" True Succeeded") {
			return fmt.Errorf("%q is sent", w.sender.sent)
		}
		return nil
	})
	sent, _ := w.sender.take()
	if maximum := int(w.clock.Since(start).Seconds())/10 + 1; len(sent) > maximum {
		t.Errorf("%d notifications were sent, and at most %d may be", len(sent), maximum)
	}
}

// A notification to a source's own receiver requests a reconciliation, which changes nothing and sends nothing.
func TestANotificationToItsOwnReceiverIsNoLoop(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", strings.Replace(notifying, "10s", "24h", 1)+"receiver: {type: generic, secret: hook}\n")
	w.ready("platform", "True", "", commit)
	w.wantSent("webhook kube-system/platform " + commit[:4] + " True Succeeded")
	body := `{"source":"kube-system/platform","ready":"True"}`
	fetched := w.repo.Fetched()
	send(w.receiver(), "POST", "/hooks/kube-system/platform", body, headersOf("generic", hookToken, body))
	w.until("it is reconciled", func() error {
		if w.repo.Fetched() == fetched {
			return errors.New("it is not fetched")
		}
		return nil
	})
	w.wantSent()
	if got := w.repo.Fetched(); got != fetched+1 {
		t.Errorf("it was fetched %d times", got-fetched)
	}
	if s := w.source("platform"); condition(s, gitsource.ConditionReady) == "" {
		t.Error("the condition is gone")
	}
}

// The targets of tenants that do not answer hold up no others.
func TestSlowTargetsOfTenantsLeaveAWorker(t *testing.T) {
	w := newWorld(t)
	w.sender.slow = make(chan struct{})
	w.putToken("hook", hookToken)
	commit := w.repo.Commit(map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"})
	for _, namespace := range []string{"t1", "t2", "t3", "t4"} {
		w.cluster.Put(gitops.ObjectID{APIVersion: "v1", Kind: "Namespace", Name: namespace}, func(map[string]any) {})
		w.cluster.Put(gitops.ObjectID{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: "hook"},
			func(content map[string]any) { content["data"] = map[string]any{"token": "dG9rZW4="} })
		for _, name := range []string{"a", "b"} {
			w.declareIn(namespace, name, notifying+"path: none\n")
			w.readyIn(namespace, name, "False", "", "")
		}
	}
	w.declare("platform", notifying)
	w.ready("platform", "True", "", commit)
	w.wantSent("webhook kube-system/platform " + commit[:4] + " True Succeeded")
	close(w.sender.slow)
	w.until("the others are sent", func() error {
		w.sender.mu.Lock()
		defer w.sender.mu.Unlock()
		if len(w.sender.sent) < 8 {
			return fmt.Errorf("%q is sent", w.sender.sent)
		}
		return nil
	})
}
