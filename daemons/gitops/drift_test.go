package gitops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// A round without changes writes neither objects nor a status.
func TestAnUnchangedSourceCausesNoWrites(t *testing.T) {
	w := newWorld(t)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "")
	before := w.ready("platform", "True", "", commit)
	w.cluster.Writes()
	fetched := w.repo.Fetched()
	w.until("three more rounds", func() error {
		if n := w.repo.Fetched(); n < fetched+3 {
			return fmt.Errorf("%d rounds", n-fetched)
		}
		return nil
	})
	w.wantWrites()
	if after := w.source("platform"); after.ResourceVersion != before.ResourceVersion {
		t.Error("the status was written")
	}
}

// Proves P06.
func TestDriftIsRevertedOrReportedAsDeclared(t *testing.T) {
	w := newWorld(t)
	commit := w.repo.Commit(map[string]string{
		"a.yaml": configMap("a", "one"),
		"b.yaml": configMap("b", "one", gitsource.DriftAnnotation, gitsource.DriftReport),
		"c.yaml": configMap("c", "one", gitsource.DriftAnnotation, gitsource.DriftIgnore),
	})
	w.declare("platform", "")
	w.ready("platform", "True", "", commit)
	for _, name := range []string{"a", "b", "c"} {
		w.setValue(name, "edited")
	}
	w.wantValue("a", "one")
	w.until("the drift is in the status", func() error {
		if s := w.source("platform"); len(s.Status.Drifted) != 1 || !strings.Contains(s.Status.Drifted[0],
			"v1 ConfigMap default/b: data.value: edited → one") {
			return fmt.Errorf("it has %q", s.Status.Drifted)
		}
		return nil
	})
	if w.value("b") != "edited" || w.value("c") != "edited" {
		t.Errorf("b is %q, c is %q", w.value("b"), w.value("c"))
	}
	if len(w.recorded("DriftReverted")) == 0 {
		t.Error("no event reports that drift was reverted")
	}
	// A commit that changes the declaration is applied in any case, except for ignored objects.
	commit = w.repo.Commit(map[string]string{
		"a.yaml": configMap("a", "two"),
		"b.yaml": configMap("b", "two", gitsource.DriftAnnotation, gitsource.DriftReport),
		"c.yaml": configMap("c", "two", gitsource.DriftAnnotation, gitsource.DriftIgnore),
	})
	s := w.ready("platform", "True", "", commit)
	if w.value("a") != "two" || w.value("b") != "two" || w.value("c") != "edited" || len(s.Status.Drifted) > 0 {
		t.Errorf("a, b, c are %q, %q, %q, and %q have drifted", w.value("a"), w.value("b"), w.value("c"),
			s.Status.Drifted)
	}
	// Objects that are deleted are drift too.
	w.cluster.Remove(configMapID("a"))
	w.cluster.Remove(configMapID("b"))
	w.wantValue("a", "two")
	w.until("the missing object is in the status", func() error {
		if s := w.source("platform"); len(s.Status.Drifted) != 1 {
			return fmt.Errorf("it has %q", s.Status.Drifted)
		}
		return nil
	})
}

func TestDriftThatIsOnlyReportedSurvivesARestart(t *testing.T) {
	w := newWorld(t)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "drift: report")
	w.ready("platform", "True", "", commit)
	w.setValue("a", "edited")
	w.start()
	w.until("the drift is in the status", func() error {
		if s := w.source("platform"); len(s.Status.Drifted) != 1 {
			return fmt.Errorf("it has %q", s.Status.Drifted)
		}
		return nil
	})
	if got := w.value("a"); got != "edited" {
		t.Errorf("a is %q", got)
	}
}

// Absence never deletes everything.
func TestASourceThatRendersNothingDeletesNothing(t *testing.T) {
	w := newWorld(t)
	w.repo.Commit(map[string]string{"app/a.yaml": configMap("a", "one"), "README.md": "x"})
	w.declare("platform", "path: app")
	w.ready("platform", "True", "", "")
	w.cluster.Writes()
	w.repo.Commit(map[string]string{"app/README.md": "x"})
	s := w.ready("platform", "False", "NothingRendered", "")
	if !strings.Contains(message(s), "spec.allowEmpty") {
		t.Errorf("the message is %q", message(s))
	}
	w.repo.Commit(map[string]string{"README.md": "x"}) // without the folder
	s = w.ready("platform", "False", "RenderFailed", "")
	if !strings.Contains(message(s), `no folder "app"`) {
		t.Errorf("the message is %q", message(s))
	}
	w.repo.Fail(errors.New("connection refused"))
	w.ready("platform", "False", "FetchFailed", "")
	w.repo.Fail(&gitops.ReasonError{Reason: gitops.ReasonVerification, Err: errors.New("the commit is not signed")})
	s = w.ready("platform", "False", "VerificationFailed", "")
	if !strings.Contains(message(s), "not signed") {
		t.Errorf("the message is %q", message(s))
	}
	w.declare("platform", "path: app\nverify: {secret: signers}")
	s = w.ready("platform", "False", "SecretNotReadable", "")
	if !strings.Contains(message(s), "kube-system/signers") {
		t.Errorf("the message is %q", message(s))
	}
	w.declare("platform", "path: app")
	w.repo.Fail(nil)
	w.wantWrites()
	last := w.repo.Commit(map[string]string{"app/README.md": "x"})
	w.declare("platform", "path: app\nallowEmpty: true")
	w.ready("platform", "True", "", last)
	w.wantWrites("delete v1 ConfigMap default/a")
}
