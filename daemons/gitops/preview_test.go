package gitops_test

import (
	"slices"
	"strings"
	"testing"

	"clusterctl/daemons/gitops"
)

// A change can be seen before it is merged into what the source follows.
func TestAPreviewShowsAnotherRevision(t *testing.T) {
	w := newWorld(t)
	first := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	proposed := w.repo.Add(map[string]string{"a.yaml": configMap("a", "two"), "b.yaml": configMap("b", "one")})
	w.repo.SetRef("refs/heads/proposal", proposed)
	w.repo.SetRef("refs/tags/v1", first)
	w.declare("platform", "interval: 24h\nbranch: main")
	w.ready("platform", "True", "", first)
	w.cluster.Writes()
	s := w.source("platform")
	c := gitops.New(gitops.Config{Client: w.client, Cluster: w.cluster, Fetcher: w.repo, Renderer: gitops.Manifests{},
		Recorder: w})
	for _, row := range []struct {
		revision, want string
		changes        []string
	}{
		{"", "main@sha1:" + first, nil},
		{"proposal", "proposal@sha1:" + proposed,
			[]string{"change v1 ConfigMap default/a", "create v1 ConfigMap default/b"}},
		{proposed, "commit@sha1:" + proposed,
			[]string{"change v1 ConfigMap default/a", "create v1 ConfigMap default/b"}},
		{"v1", "v1@sha1:" + first, nil},
	} {
		p, err := c.Preview(t.Context(), s, row.revision, []*gitops.Source{s})
		if err != nil {
			t.Errorf("%q: %v", row.revision, err)
			continue
		}
		var got []string
		for _, change := range p.Changes {
			got = append(got, change.Action+" "+change.Object)
		}
		if p.Revision != row.want || !slices.Equal(got, row.changes) {
			t.Errorf("%q: %s %q, want %s %q", row.revision, p.Revision, got, row.want, row.changes)
		}
	}
	for _, revision := range []string{"missing", "--upload-pack=x", "../x", strings.Repeat("0", 40)} {
		if _, err := c.Preview(t.Context(), s, revision, []*gitops.Source{s}); err == nil {
			t.Errorf("%q is accepted", revision)
		}
	}
	w.wantWrites()
	if s.Spec.Branch != "main" {
		t.Error("the source was changed")
	}
}
