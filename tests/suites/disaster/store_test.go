package disaster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config/store"
	"clusterctl/kube/kubernetes"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
)

// planesConfig returns the configuration of three control-plane machines with an etcd block and an object.
func planesConfig(etcd string) string {
	return `cluster "stored" {
  etcd {
` + etcd + `
  }
}

machine "plane" {
  count   = 3
  name    = "c${count.index + 1}"
  address = "10.99.0.1${count.index + 1}"
  roles   = ["control-plane"]
  ssh { user = "root" }
}

object "v1" "ConfigMap" "declared" {
  metadata = { namespace = "default" }
  data     = { word = "kept" }
}
`
}

var threePlanes = []string{"c1=10.99.0.11", "c2=10.99.0.12", "c3=10.99.0.13"}

// testAllDisksGone tests a control plane whose machines have all lost etcd's data, with the last scheduled snapshot in
// a bucket.
func testAllDisksGone(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "gone", threePlanes, `variable "s3_secret" {
  type      = string
  sensitive = true
}
`+planesConfig(`    snapshot {
      every  = "1m"
      jitter = "1s"
      s3 {
        endpoint          = "http://10.99.0.1:9000"
        bucket            = "backups"
        path_style        = true
        region            = "us-east-1"
        access_key_id     = "clusterctl"
        secret_access_key = var.s3_secret
      }
    }`))
	t.Setenv("CLUSTERCTL_VAR_s3_secret", "a-secret-of-the-bucket")
	serveBucket(ctx, t, c)
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, c)
	createObject(ctx, t, client, "before")
	awaitSnapshot(ctx, t, c)
	seen := startWatch(ctx, t, client)
	createObject(ctx, t, client, "after")
	seen(ctx, t, "after", true)

	for _, m := range c.Lab.Machines {
		deleteEtcdData(ctx, t, m, "/var/lib/etcd /var/lib/etcd-snapshots")
	}
	mustFail(ctx, t, c, "the store has no majority", "etcd", "status")
	mustRefuse(ctx, t, c, "clusterctl etcd snapshot restore brings it back from a snapshot", "apply", "-auto-approve")
	output := clusterctl(ctx, t, c, "etcd", "snapshot", "restore", "-auto-approve")
	t.Log(output)
	if !strings.Contains(output, "The store is rebuilt on") {
		t.Errorf("restore says\n%s", output)
	}
	clusterctl(ctx, t, c, "etcd", "status")
	clusterctl(ctx, t, c, "apply", "-auto-approve")

	// A client that was watching before receives the present state, and its watch continues.
	seen(ctx, t, "after", false)
	createObject(ctx, t, client, "later")
	seen(ctx, t, "later", true)
	for _, name := range []string{"before", "declared"} {
		if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Errorf("what the snapshot had: %v", err)
		}
	}
	for _, m := range c.Lab.Machines {
		out, err := m.Run(ctx, "grep -rl a-secret-of-the-bucke[t] /etc /var/lib /run /proc/[0-9]*/cmdline "+
			"2>/dev/null; stat -c %a /etc/kubernetes/etcd-snapshots.json")
		if err != nil || strings.TrimSpace(out) != "/etc/kubernetes/etcd-snapshots.json\n600" {
			t.Errorf("%s has the bucket's secret in %s, %v", m.Name, out, err)
		}
	}
	checkDeclared(ctx, t, c)
}

// testMajorityGone tests a control plane of three machines, of which two have lost etcd's data.
func testMajorityGone(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "majority", threePlanes, planesConfig(""))
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, c)
	createObject(ctx, t, client, "before")
	file := filepath.Join(c.Folder, "saved.db")
	if output := clusterctl(ctx, t, c, "etcd", "snapshot", "save", file); !strings.Contains(output, "checked") {
		t.Errorf("save says\n%s", output)
	}
	if output := clusterctl(ctx, t, c, "__complete", "etcd", "snapshot", "restore", "etcd-"); !strings.HasPrefix(output,
		"etcd-") {
		t.Errorf("a shell is offered these snapshots:\n%s", output)
	}
	createObject(ctx, t, client, "after")
	seen := startWatch(ctx, t, client)
	for _, m := range c.Lab.Machines[:2] {
		deleteEtcdData(ctx, t, m, "/var/lib/etcd")
	}
	mustFail(ctx, t, c, "the store has no majority", "etcd", "status")
	mustRefuse(ctx, t, c, "clusterctl etcd snapshot restore -from-member c3", "apply", "-auto-approve")
	mustRefuse(ctx, t, c, "use -from-member c3", "etcd", "snapshot", "restore", "-auto-approve", file)
	t.Log(clusterctl(ctx, t, c, "etcd", "snapshot", "restore", "-auto-approve", "-from-member", "c3"))
	seen(ctx, t, "after", true) // nothing is lost
	checkDeclared(ctx, t, c)

	// The same with a snapshot from this computer, while etcd works. The user must name what is deleted.
	createObject(ctx, t, client, "thrown-away")
	mustRefuse(ctx, t, c, "the store works, 3 of 3 members answer", "etcd", "snapshot", "restore", "-auto-approve",
		file)
	t.Log(clusterctl(ctx, t, c, "etcd", "snapshot", "restore", "-auto-approve", "-allow-data-loss", "etcd", file))
	seen(ctx, t, "thrown-away", false)
	seen(ctx, t, "before", true)
	t.Log(clusterctl(ctx, t, c, "etcd", "members"))
	checkDeclared(ctx, t, c)
}

// testNoSpace tests an etcd that has reached its quota.
func testNoSpace(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "full", threePlanes, planesConfig(`    quota = "64Mi"`))
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, c)
	full := errors.New("it is never full")
	for i := 0; i < 400 && full != nil; i++ {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("big-%d", i%8)},
			Data:       map[string]string{"x": strings.Repeat(fmt.Sprintf("%08d", i), 100_000)},
		}
		_, err := client.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
		if err != nil && strings.Contains(err.Error(), "not found") {
			_, err = client.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{})
		}
		if err != nil && strings.Contains(err.Error(), "space") {
			full = nil
		} else if err != nil {
			full = err
		}
	}
	if full != nil {
		t.Fatal(full)
	}
	mustFail(ctx, t, c, "raises NOSPACE", "etcd", "status")
	if output := clusterctl(ctx, t, c, "etcd", "alarm", "list"); !strings.Contains(output, "NOSPACE") {
		t.Errorf("alarm list says\n%s", output)
	}
	for _, words := range []string{"etcd compact", "etcd defrag", "etcd alarm disarm"} {
		clusterctl(ctx, t, c, strings.Fields(words)...)
	}
	createObject(ctx, t, client, "after")
	clusterctl(ctx, t, c, "etcd", "status")
	checkDeclared(ctx, t, c)
}

// deleteEtcdData deletes etcd's data on a machine, as with a new disk.
func deleteEtcdData(ctx context.Context, t *testing.T, m *machines.Machine, dirs string) {
	t.Helper()
	if out, err := m.Run(ctx, "systemctl kill -s KILL etcd; systemctl stop etcd; for d in "+dirs+"; do find $d "+
		"-mindepth 1 -delete; done"); err != nil {
		t.Fatalf("%s: %v: %s", m.Name, err, out)
	}
}

// mustFail runs clusterctl, which must print a text and exit with status 1.
func mustFail(ctx context.Context, t *testing.T, c *cluster.Cluster, message string, args ...string) {
	t.Helper()
	mustRefuse(ctx, t, c, message, args...)
}

// serveBucket serves an empty bucket to the machines.
func serveBucket(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	serve := c.Lab.Command(ctx, filepath.Join(c.Bundle, "gofakes3"), "-host", "10.99.0.1:9000", "-backend", "memory",
		"-initialbucket", "backups")
	serve.Stderr = os.Stderr
	if err := serve.Start(); err != nil {
		t.Fatalf("serve a bucket (make test-tools builds the program): %v", err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
	})
}

// newClient returns a client of all API servers.
func newClient(t *testing.T, c *cluster.Cluster) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Dial, config.QPS = c.Lab.Dial, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func createObject(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name string) {
	t.Helper()
	if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// startWatch starts a watch. The returned function waits until an object exists or no longer exists.
func startWatch(
	ctx context.Context,
	t *testing.T,
	client *kubernetes.Clientset,
) func(ctx context.Context, t *testing.T, name string, there bool) {
	t.Helper()
	factory := informers.New(client, informers.WithNamespace("default"))
	informer := informers.ConfigMaps(factory)
	lister := informer.Lister()
	_ = informer.Informer() // makes the factory start it
	ctx, stop := context.WithCancel(ctx)
	t.Cleanup(func() {
		stop()
		factory.Shutdown()
	})
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	return func(ctx context.Context, t *testing.T, name string, there bool) {
		t.Helper()
		if err := cluster.Eventually(ctx, 2*time.Minute, func(context.Context) error {
			if _, err := lister.ConfigMaps("default").Get(name); (err == nil) != there {
				return fmt.Errorf("who watches sees %s: %v, and it is there: %v", name, err == nil, there)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitSnapshot waits for a snapshot in the bucket that begins after the call.
func awaitSnapshot(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	from := time.Now()
	if err := cluster.Eventually(ctx, 4*time.Minute, func(ctx context.Context) error {
		out, err := cluster.Output(c.Clusterctl(ctx, "etcd", "snapshot", "ls", "-json"))
		if err != nil {
			return err
		}
		var listed struct{ Snapshots []store.Snapshot }
		if err := json.Unmarshal([]byte(out), &listed); err != nil {
			return err
		}
		for _, s := range listed.Snapshots {
			if s.Reason == store.Scheduled && s.Taken.After(from) && strings.Contains(strings.Join(s.In, ","), "s3") {
				return nil
			}
		}
		return fmt.Errorf("no snapshot after %s in the bucket: %s", from, out)
	}); err != nil {
		t.Fatal(err)
	}
}
