package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func manifestOf(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: default}\nspec: {containers: " +
		"[{name: main, image: '" + image + "'}]}\n"
}

func (n *node) writeManifest(name, text string) string {
	n.t.Helper()
	path := filepath.Join(n.file.StaticPodPath, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// Static pods stay if their directory is missing or overmounted by an empty one, even if the kubelet restarts.
// Proves S23.
func TestStaticPodsSurviveTheLossOfTheirDirectory(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, dir string){
		"missing": func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+".away"); err != nil {
				t.Fatal(err)
			}
		},
		"another, empty": func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+".away"); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.writeManifest("etcd.yaml", manifestOf("etcd", "etcd:1"))
			n.start()
			n.until("the mirror to be ready", func() bool { return isReady(n.pod("etcd-n1")) })
			uid := n.pod("etcd-n1").UID
			lose(t, n.file.StaticPodPath)
			n.stop()
			k := n.newKubelet()
			if err := k.readManifests(); err == nil {
				t.Error("it was taken for read")
			}
			n.runKubelet(k)
			<-k.synced
			n.create(simplePod("web"))
			n.until("another pod to be ready", func() bool { return isReady(n.pod("web")) })
			k.adoptOrphans(context.Background(), nil)
			k.static.mirrors.sync(context.Background(), nodeOwner(k.agent.Node()))
			if boxes, err := n.runtime.ListPodSandbox(context.Background(), nil); err != nil || len(boxes) != 2 {
				t.Errorf("%d sandboxes, %v", len(boxes), err)
			}
			if p := n.pod("etcd-n1"); p == nil || p.UID != uid {
				t.Error("its mirror is gone")
			}
			if _, ok := k.knownPods(); !ok {
				t.Error("what is left of other pods is not cleaned up")
			}
		})
	}
}

// Proves S23.
func TestABrokenManifestAffectsOnlyItsPod(t *testing.T) {
	n := newNode(t)
	etcd, other := n.writeManifest("etcd.yaml", manifestOf("etcd", "etcd:1")), n.writeManifest("other.yaml",
		manifestOf("other", "other:1"))
	k := n.newKubelet()
	if err := k.readManifests(); err != nil {
		t.Fatal(err)
	}
	before, _, err := recordDir(k.cfg.RootDir).load()
	if err != nil {
		t.Fatal(err)
	}
	n.writeManifest("etcd.yaml", "{")
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	k = n.newKubelet() // simulates a restart
	if err := k.readManifests(); err == nil {
		t.Error("the broken manifest was not reported")
	}
	close(k.synced)
	uids, ok := k.knownPods()
	if !ok || !uids[string(before.Pods[etcd])] || uids[string(before.Pods[other])] || len(uids) != 1 {
		t.Errorf("known are %v (%v); the broken one's is %s", uids, ok, before.Pods[etcd])
	}
	if err := os.Remove(etcd); err != nil {
		t.Fatal(err)
	}
	if err := k.readManifests(); err != nil {
		t.Fatal(err)
	}
	if after, ok := k.knownPods(); !ok || len(after) != 0 {
		t.Errorf("after its manifest was taken away: %v", after)
	}
	if err := os.WriteFile(recordDir(k.cfg.RootDir).path(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	k = n.newKubelet()
	close(k.synced)
	if err := k.readManifests(); err == nil {
		t.Error("a broken record was taken for none")
	}
	if _, ok := k.knownPods(); ok {
		t.Error("without a record all is known")
	}
}
