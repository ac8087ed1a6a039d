package workload

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"clusterctl/hcl/block"
	"clusterctl/hcl/config"
	"clusterctl/hcl/load"
)

var update = flag.Bool("update", false, "rewrite the wanted objects")

// loadWorkloads loads a configuration of workloads without a cluster.
func loadWorkloads(t *testing.T, text string) *config.Cluster {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, diags := load.Load(load.Options{Path: dir, Root: dir, WorkloadObjects: ObjectsOf})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return c.Cluster
}

// Each file of testdata/kinds is a workload block with the objects that it becomes.
// Proves P06.
func TestWorkloadsBecomeTheObjectsOfTheirKind(t *testing.T) {
	scripts, err := filepath.Glob("testdata/kinds/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(script)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, w := range loadWorkloads(t, string(archive.Files[0].Data)).Workloads {
				objects, err := ObjectsOf(w)
				if err != nil {
					t.Fatal(err)
				}
				if len(objects) != len(w.ObjectKeys()) {
					t.Errorf("%d objects, and %d keys", len(objects), len(w.ObjectKeys()))
				}
				for _, o := range objects {
					if err := block.CheckObject(o); err != nil {
						t.Error(err)
					}
					text, err := yaml.Marshal(o)
					if err != nil {
						t.Fatal(err)
					}
					got.WriteString("---\n" + string(text))
				}
			}
			if *update {
				archive.Files = append(archive.Files[:1], txtar.File{Name: "objects.yaml", Data: []byte(got.String())})
				if err := os.WriteFile(script, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(archive.Files) != 2 || string(archive.Files[1].Data) != got.String() {
				t.Errorf("got:\n%s", got.String())
			}
		})
	}
}

// The number of pods stays when an autoscaler takes over: the live value is kept until the autoscaler owns it.
func TestAnAutoscalerSetsTheReplicas(t *testing.T) {
	c := loadWorkloads(t, "workload \"web\" {\n  container \"web\" {\n    image = \"x\"\n  }\n"+
		"  autoscaling {\n    max = 3\n    cpu = 50\n  }\n}\n")
	list, err := DeclaredObjects(c, Manager)
	if err != nil {
		t.Fatal(err)
	}
	web := findDesired(t, list, "Deployment", "web")
	if _, ok := valueAt(web.Object.Object, []string{"spec", "replicas"}); ok {
		t.Error("the workload sets the replicas too")
	}
	live := web.Object.DeepCopy()
	setValue(live.Object, []string{"spec", "replicas"}, int64(7), true)
	if got, _ := valueAt(web.OverLive(live).Object.Object, []string{"spec", "replicas"}); got != int64(7) {
		t.Errorf("replicas %v, want the live 7", got)
	}
}

func TestTheDigestOfSecretsDependsOnTheTextsAndTheWorkload(t *testing.T) {
	seen := map[string]bool{}
	for _, one := range []struct{ text, salt string }{{"a", "shop/web"}, {"b", "shop/web"}, {"a", "shop/db"}} {
		digest, err := slowDigest(map[string]string{"key": one.text}, one.salt)
		if err != nil || len(digest) != 6 || seen[digest] {
			t.Errorf("the digest of %v is %q, %v", one, digest, err)
		}
		seen[digest] = true
	}
}
