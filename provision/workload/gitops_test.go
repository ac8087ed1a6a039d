package workload

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// The rights and the definition exist only where GitSources are declared, or were declared and still exist.
func TestGitSourcesBringTheirDefinitionAndRights(t *testing.T) {
	source := newDeclared("git_source.a", 1, newItem(gitsource.APIVersion, gitsource.Kind, "kube-system", "a", nil))
	for _, row := range []struct {
		cluster config.Cluster
		want    bool
	}{
		{config.Cluster{}, false},
		{config.Cluster{Objects: []config.Object{source}}, true},
		{config.Cluster{HadGitSources: true}, true},
	} {
		row.cluster.Name = "home"
		list, err := Objects(&row.cluster)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"CustomResourceDefinition gitsources.gitops.clusterctl.local",
			"ClusterRole system:gitops-controller", "ClusterRoleBinding system:gitops-controller",
			"Role system:gitops-controller", "RoleBinding system:gitops-controller", "ServiceAccount gitops",
			"ClusterRoleBinding kube-system:gitops"} {
			i := slices.IndexFunc(list,
				func(d Desired) bool { return d.Object.GetKind()+" "+d.Object.GetName() == name })
			if (i >= 0) != row.want {
				t.Errorf("with %d sources, %s exists: %v", len(row.cluster.Objects), name, i >= 0)
			}
			if i >= 0 && list[i].Object.GetKind() == "CustomResourceDefinition" {
				checkDefinition(t, list[i])
			}
			if i >= 0 && list[i].Object.GetKind() == "CustomResourceDefinition" && !list[i].IsNeverPruned {
				t.Error("the definition can be pruned, and all sources with it")
			}
		}
	}
}

// The service for webhooks and the right to be its endpoint exist only with the port.
func TestThePortForWebhooksBringsItsService(t *testing.T) {
	for _, port := range []int{0, 10267} {
		c := config.Cluster{Name: "home", HadGitSources: true}
		if port != 0 {
			c.GitOps.Choose("receiver_port", port)
		}
		list, err := Objects(&c)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Service gitops-receiver", "Role system:gitops-controller:receiver",
			"RoleBinding system:gitops-controller:receiver"} {
			got := slices.ContainsFunc(list,
				func(d Desired) bool { return d.Object.GetKind()+" "+d.Object.GetName() == name })
			if got != (port != 0) {
				t.Errorf("with port %d, %s exists: %v", port, name, got)
			}
		}
	}
}

// A deleted source stays in the state while the controller deletes its objects.
func TestADeletedSourceStaysInTheStateUntilItIsGone(t *testing.T) {
	there := newItem(gitsource.APIVersion, gitsource.Kind, "kube-system", "there", nil)
	l, client := newFakeLive()
	gvr := schema.GroupVersionResource{Group: gitsource.Group, Version: gitsource.Version, Resource: gitsource.Resource}
	mapper, ok := l.mapper.(fakeMapper)
	if !ok {
		t.Fatal("another mapper")
	}
	mapper.Add(gvr.GroupVersion().WithKind(gitsource.Kind), meta.RESTScopeNamespace)
	if err := client.Tracker().Create(gvr, there, "kube-system"); err != nil {
		t.Fatal(err)
	}
	reference := func(apiVersion, kind, name string) state.Object {
		return state.Object{APIVersion: apiVersion, Kind: kind, Namespace: "kube-system", Name: name}
	}
	got := l.endingSources(t.Context(), []state.Object{
		reference(gitsource.APIVersion, gitsource.Kind, "there"),
		reference(gitsource.APIVersion, gitsource.Kind, "gone"),
		reference("v1", "ConfigMap", "there"),
	})
	if len(got) != 1 || got[0].Name != "there" {
		t.Errorf("%v", got)
	}
}

// checkDefinition compares the definition with its text. Without its status subresource, for example, the controller
// could report nothing and would apply nothing.
func checkDefinition(t *testing.T, got Desired) {
	t.Helper()
	var want map[string]any
	if err := yaml.Unmarshal(gitsource.Definition, &want); err != nil {
		t.Fatal(err)
	}
	left, err := json.Marshal(got.Object.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	right, err := json.Marshal(want["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if string(left) != string(right) {
		t.Errorf("the definition is\n%s\nwant\n%s", left, right)
	}
}
