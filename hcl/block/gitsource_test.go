package block

import (
	"encoding/json"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

// depends_on of a GitSource orders the sources in the cluster too.
func TestGitSourcesDependOnEachOtherInTheCluster(t *testing.T) {
	source := func(name, block string, after ...string) config.Object {
		return config.Object{Block: block, Address: block, DependsOn: after, Content: map[string]any{
			"apiVersion": "gitops.clusterctl.local/v1", "kind": "GitSource",
			"metadata": map[string]any{"name": name, "namespace": "kube-system"}, "spec": map[string]any{}}}
	}
	c := &config.Cluster{Objects: []config.Object{
		source("infra", "git_source.infra"),
		source("a", `git_source.team["a"]`),
		source("b", `module.x.git_source.team["b"]`),
		source("apps", "git_source.apps", "git_source.infra", "git_source.team", "workload.db"),
		source("last", "git_source.last", "module.x"),
	}}
	if diags := orderGitSources(c, func(config.Source) *hcl.Range { return nil }); diags.HasErrors() {
		t.Fatal(diags)
	}
	want := []string{"null", "null", "null",
		`[{"name":"infra","namespace":"kube-system"},{"name":"a","namespace":"kube-system"}]`,
		`[{"name":"b","namespace":"kube-system"}]`}
	for i, o := range c.Objects {
		spec, _ := o.Content["spec"].(map[string]any)
		got, err := json.Marshal(spec["dependsOn"])
		if err != nil || string(got) != want[i] {
			t.Errorf("%s depends on %s, %v, want %s", o.Block, got, err, want[i])
		}
	}
	if !c.HasGitSources() || !c.NeedsGitOps() || (&config.Cluster{}).NeedsGitOps() ||
		!(&config.Cluster{HadGitSources: true}).NeedsGitOps() {
		t.Error("the controller is not needed when it is, or the other way round")
	}
}
