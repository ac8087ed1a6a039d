package kubelet

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// logFiles returns the log files of a pod's container.
func (n *node) logFiles(pod, container string) []string {
	n.t.Helper()
	found, err := filepath.Glob(filepath.Join(n.options.LogRoot, "default_"+pod+"_*", container, "*"))
	if err != nil {
		n.t.Fatal(err)
	}
	return found
}

// Proves S23.
func TestLogsOfAllContainersAreRotated(t *testing.T) {
	n := newNode(t)
	n.file.ContainerLogMaxSize = "1Mi"
	n.writeManifest("static.yaml", manifestOf("static", "busybox:1"))
	k := n.newKubelet()
	for i := range k.tasks {
		if c := &k.tasks[i]; c.Name == "log rotation" {
			if c.Interval != 10*time.Second {
				t.Errorf("logs are looked at every %s", c.Interval)
			}
			c.Interval = time.Millisecond
		}
	}
	n.runKubelet(k)
	p := simplePod("web")
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []corev1.Container{{Name: "side", Image: "busybox:1", RestartPolicy: &always}}
	n.create(p)
	n.until("the pods to be ready", func() bool { return isReady(n.pod("web")) && isReady(n.pod("static-n1")) })
	watched := n.pod("web").DeepCopy()
	watched.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "look", Image: "busybox:1"}},
	}
	n.updatePod(watched)
	n.until("the ephemeral container to run", func() bool {
		s := n.pod("web").Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Running != nil
	})
	for _, c := range []struct{ pod, name string }{{"web", "main"}, {"web", "side"}, {"web", "look"},
		{"static-n1", "main"}} {
		dirs, err := filepath.Glob(filepath.Join(n.options.LogRoot, "default_"+c.pod+"_*", c.name))
		if err != nil || len(dirs) != 1 {
			t.Fatalf("the log directories of %s are %v, %v", c, dirs, err)
		}
		if err := os.WriteFile(filepath.Join(dirs[0], "0.log"), make([]byte, 2<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		n.until("the log of "+c.pod+"/"+c.name+" to be rotated", func() bool {
			files := n.logFiles(c.pod, c.name)
			return len(files) == 1 && filepath.Base(files[0]) != "0.log"
		})
	}
}
