package main

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// newTestSource returns a source whose Ready condition has a status.
func newTestSource(name string, ready metav1.ConditionStatus) *gitops.Source {
	s := &gitops.Source{Spec: gitsource.Spec{URL: "https://git.example/a.git"}}
	s.Namespace, s.Name, s.Generation = gitsource.Namespace, name, 2
	s.Status = gitsource.Status{ObservedGeneration: 2, Objects: 3,
		AppliedRevision: "main@sha1:0123456789abcdef0123456789abcdef01234567",
		Conditions: []metav1.Condition{{Type: gitsource.ConditionReady, Status: ready, Reason: "Reason",
			Message: "what happened"}}}
	return s
}

func TestTheStatusOfSourcesShowsWhatNeedsAttention(t *testing.T) {
	good, bad, old, off := newTestSource("good", "True"), newTestSource("bad", "False"), newTestSource("old", "True"),
		newTestSource("off", "False")
	bad.Status.Failed, bad.Status.Drifted = []string{"v1 Pod default/p: is not " +
		"ready"}, []string{"v1 ConfigMap default/c"}
	old.Generation++
	off.Spec.Suspend = true
	var states []sourceStatus
	for _, s := range []*gitops.Source{good, bad, old, off} {
		states = append(states, statusOfSource(s))
	}
	for i, want := range []bool{true, false, false, true} {
		if got := states[i].isWell(); got != want {
			t.Errorf("%s is well: %v", states[i].Name, got)
		}
	}
	var out strings.Builder
	if err := printSources(&out, states); err != nil {
		t.Fatal(err)
	}
	want := `SOURCE             READY       OBJECTS   REVISION            MESSAGE
kube-system/good   True        3         main@0123456789ab   what happened
kube-system/bad    False       3         main@0123456789ab   what happened
kube-system/old    True        3         main@0123456789ab   the controller has not seen the present version yet
kube-system/off    suspended   3         main@0123456789ab   what happened

kube-system/bad: these objects differ and are not reverted:
  v1 ConfigMap default/c

kube-system/bad: these objects failed:
  v1 Pod default/p: is not ready
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

// Messages of the API and of repositories come from tenants.
func TestMessagesDoNotControlTheTerminal(t *testing.T) {
	s := statusOfSource(newTestSource("bad", "False"))
	s.Message = "no\x1b[2Jsuch \u009bfile\nkube-system/fake   True"
	s.Failed = []string{"v1 Pod default/p: \u202eydaer"}
	var out strings.Builder
	c := &cobra.Command{}
	c.SetOut(&out)
	var flags apiFlags
	err := flags.write(c, s, func(w io.Writer) error { return printSources(w, []sourceStatus{s}) })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`no\x1b[2Jsuch \x9bfile\nkube-system/fake   True`, `default/p: \u202eydaer`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %q:\n%q", want, out.String())
		}
	}
}

func TestAPreviewIsPrintedAsChanges(t *testing.T) {
	text, err := json.Marshal(gitops.Preview{Source: "kube-system/a", Revision: "main@sha1:0", Objects: 2,
		Changes: []gitops.Change{
			{Object: "v1 ConfigMap default/a", Action: "change", File: "app/a.yaml", Diff: []string{"data.x: 1 → 2"}},
			{Object: "v1 Pod default/p", Action: "refused", Reason: "it is refused"},
			{Object: "v1 Secret default/s", Action: "delete"},
			{Object: "batch/v1 Job default/j", Action: "recreate", Reason: "an immutable field has changed"}}})
	if err != nil {
		t.Fatal(err)
	}
	preview, err := decodePreview(text)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printPreview(&out, preview); err != nil {
		t.Fatal(err)
	}
	want := `kube-system/a at main@sha1:0: 2 objects
  ~ v1 ConfigMap default/a  app/a.yaml
      data.x: 1 → 2
  ! v1 Pod default/p (refused: it is refused)
  - v1 Secret default/s
  -/+ batch/v1 Job default/j (recreate: an immutable field has changed)
Plan: 0 to create, 1 to change, 1 to remove, 1 to replace, 1 refused by the API.
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	if _, err := decodePreview([]byte("x")); err == nil {
		t.Error("text that is not JSON is accepted")
	}
}

func TestSourcesAreNamedWithTheirNamespace(t *testing.T) {
	for text, want := range map[string]string{"platform": "kube-system/platform", "shop/app": "shop/app"} {
		if got := parseSource(text).String(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for revision, want := range map[string]string{"": "none", "main@sha1:0123456789abcdef": "main@0123456789ab",
		"folder@sha256:01": "folder@01"} {
		if got := shortRevision(revision); got != want {
			t.Errorf("%s is shown as %s, want %s", revision, got, want)
		}
	}
}

// The file may name a user to impersonate. Without that, a diff would have more rights than its caller asked for.
func TestADiffUsesTheKubeconfigOfTheFlagAsItIs(t *testing.T) {
	flags := apiFlags{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	dir := t.TempDir()
	if got, err := flags.kubeconfigFile(newGitOpsDiff(), dir); err != nil || got != flags.kubeconfig {
		t.Errorf("%q, %v", got, err)
	}
	flags.output = "xml"
	if _, err := flags.kubeconfigFile(newGitOpsDiff(), dir); err == nil {
		t.Error("an unknown format is accepted")
	}
}
