package roll

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
)

const rotationLimit = 12 * time.Minute

// apply rotates keys on several API servers, from clusterctl's own keys to a plugin's. Stored values can be read and
// written through each server at all times.
// Proves S10.
func TestKeyRotationKeepsAllValuesReadable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), rotationLimit)
	defer cancel()
	c := startCluster(ctx, t, "keys", encryptionConfig(`key = "1"`))
	runPlugins(ctx, t, c)
	servers := clientsOfServers(ctx, t, c)
	for i := range 30 {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("kept-%d", i)},
			StringData: map[string]string{"word": fmt.Sprintf("word-%d", i)},
		}
		if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
			_, err := servers[i%3].CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil // of an attempt without an answer
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	checkStored(ctx, t, c, "k8s:enc:secretbox:v1:1:")

	watched, stop := context.WithCancel(ctx)
	var use sync.WaitGroup
	for i, server := range servers {
		use.Go(func() { useSecrets(watched, t, server, i) })
	}
	defer use.Wait()
	defer stop()
	for _, step := range []struct{ declared, prefix string }{
		{`key = "2"`, "k8s:enc:secretbox:v1:2:"},
		{"provider = \"kms\"\n    key = \"vault\"\n    endpoint = " +
			"\"unix:///run/kms/plugin.sock\"", "k8s:enc:kms:v2:vault:"},
		{"provider = \"aesgcm\"\n    key = \"3\"", "k8s:enc:aesgcm:v1:3:"},
		{"provider = \"kms\"\n    key = \"vault\"\n    endpoint = " +
			"\"unix:///run/kms/plugin.sock\"", "k8s:enc:kms:v2:vault:"},
	} {
		if err := c.Write("cluster.hcl", encryptionConfig(step.declared)); err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(ctx, os.Stderr); err != nil {
			t.Fatal(err)
		}
		checkStored(ctx, t, c, step.prefix)
	}
	for _, m := range c.Lab.Machines {
		checkLoadedKeys(ctx, t, m, "[secretbox:v1:1 secretbox:v1:2 identity]",
			"[secretbox:v1:2 secretbox:v1:1 identity]", "[secretbox:v1:2 identity]",
			"[secretbox:v1:2 kms:v2:vault identity]", "[kms:v2:vault secretbox:v1:2 identity]",
			"[kms:v2:vault identity]", "[kms:v2:vault aesgcm:v1:3 identity]", "[aesgcm:v1:3 kms:v2:vault identity]",
			"[aesgcm:v1:3 identity]", "[aesgcm:v1:3 kms:v2:vault identity]", "[kms:v2:vault aesgcm:v1:3 identity]",
			"[kms:v2:vault identity]")
	}
	rotatePlugins(ctx, t, c)
	stop()
	use.Wait()
	stopPlugin(ctx, t, c, servers)
	if plan, err := c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput(); err != nil {
		t.Errorf("not as declared afterwards: %v\n%s", err, plan)
	}
}

func encryptionConfig(how string) string {
	return strings.Replace(clusterConfig, "{}", "{\n  encryption {\n    "+how+"\n  }\n}", 1)
}

// runPlugins runs a KMS plugin on every machine, with the same keys.
func runPlugins(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(c.Bundle, "kmsplugin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Lab.Machines {
		copying := m.SSH(ctx, "root", "mkdir -p /run/kms && echo one > /run/kms/key && cat > /usr/local/bin/kmsplugin "+
			"&& chmod 755 /usr/local/bin/kmsplugin && systemd-run --quiet --unit=kmsplugin /usr/local/bin/kmsplugin "+
			"-listen /run/kms/plugin.sock -key-file /run/kms/key -secret shared")
		copying.Stdin = strings.NewReader(string(program))
		if out, err := copying.CombinedOutput(); err != nil {
			t.Fatalf("start a KMS plugin on %s: %v: %s", m.Name, err, out)
		}
	}
}

// clientsOfServers returns a client for each API server alone.
func clientsOfServers(ctx context.Context, t *testing.T, c *cluster.Cluster) (list []*kubernetes.Clientset) {
	t.Helper()
	for _, m := range c.Lab.Machines {
		config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		config.Host, config.Dial, config.Timeout = "https://"+m.Address+":6443", c.Lab.Dial, 20*time.Second
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
			t.Fatalf("ask the API server of %s: %v", m.Name, err)
		}
		list = append(list, client)
	}
	return list
}

// useSecrets reads all secrets through an API server and writes its own secret, again and again. The machine may be
// slow, so a timeout of etcd or of the plugin does not count as unreadable.
func useSecrets(ctx context.Context, t *testing.T, server *kubernetes.Clientset, which int) {
	secrets := server.CoreV1().Secrets("default")
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("own-%d", which)}}
	good, silent := 0, 0
	for round := 0; ctx.Err() == nil; round++ {
		own.StringData = map[string]string{"round": fmt.Sprint(round)}
		_, writeErr := secrets.Update(ctx, own, metav1.UpdateOptions{})
		if apierrors.IsNotFound(writeErr) {
			_, writeErr = secrets.Create(ctx, own, metav1.CreateOptions{})
		}
		list, listErr := secrets.List(ctx, metav1.ListOptions{})
		one, oneErr := secrets.Get(ctx, fmt.Sprintf("kept-%d", round%30), metav1.GetOptions{})
		for _, err := range []error{writeErr, listErr, oneErr} {
			if err != nil && !apierrors.IsTimeout(err) && !strings.Contains(err.Error(), "no answer within") &&
				ctx.Err() == nil {
				t.Errorf("use server %d: %v", which, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
		if writeErr != nil || listErr != nil || oneErr != nil {
			silent++
			continue
		}
		if string(one.Data["word"]) != fmt.Sprintf("word-%d", round%30) {
			t.Errorf("server %d reads %s as %q", which, one.Name, one.Data)
		}
		kept := 0
		for _, s := range list.Items {
			if n, ok := strings.CutPrefix(s.Name, "kept-"); ok && string(s.Data["word"]) == "word-"+n {
				kept++
			}
			if s.Name == own.Name && string(s.Data["round"]) != fmt.Sprint(round) {
				t.Errorf("server %d does not list what it wrote: %q, want %d", which, s.Data, round)
			}
		}
		if kept != 30 {
			t.Errorf("server %d lists %d of 30 secrets", which, kept)
		}
		good++
	}
	t.Logf("server %d was used %d times, and %d times there was no answer in time", which, good, silent)
	if good < 20 {
		t.Errorf("server %d was hardly used: %d times", which, good)
	}
}

// storedValues reads the stored values from etcd, with the credentials of an API server.
func storedValues(ctx context.Context, t *testing.T, c *cluster.Cluster) []string {
	t.Helper()
	for name, at := range map[string]string{"ca.crt": "etcd/ca.crt", "client.crt": "apiserver-etcd-client.crt",
		"client.key": "apiserver-etcd-client.key"} {
		text, err := c.Lab.Machines[0].Run(ctx, "cat /etc/kubernetes/pki/"+at)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.Lab.Home(), name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	etcdctl := c.Lab.Command(ctx, filepath.Join(c.Bundle, "etcdctl"), "--endpoints=https://10.99.0.11:2379",
		"--cacert=ca.crt", "--cert=client.crt", "--key=client.key", "get", "--prefix", "/registry/secrets/", "-w",
		"fields")
	etcdctl.Dir = c.Lab.Home()
	out, err := cluster.Output(etcdctl)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^"Value" : (".*)$`).FindAllString(out, -1)
}

// checkStored checks that all secrets in etcd are encrypted with one key.
func checkStored(ctx context.Context, t *testing.T, c *cluster.Cluster, prefix string) {
	t.Helper()
	all := storedValues(ctx, t, c)
	if len(all) < 30 {
		t.Errorf("etcdctl shows %d secrets", len(all))
	}
	for _, value := range all {
		if !strings.HasPrefix(value, `"Value" : "`+prefix) {
			t.Errorf("stored as %.60s…, want %s", value, prefix)
		}
	}
}

// checkLoadedKeys checks the order in which an API server has loaded keys.
func checkLoadedKeys(ctx context.Context, t *testing.T, m *machines.Machine, want ...string) {
	t.Helper()
	out, err := m.Run(ctx,
		"journalctl -u kube-apiserver -o cat | grep 'encryption configuration has changed' | grep -o '\\[.*\\]'")
	if got := strings.Split(strings.TrimSpace(out), "\n"); err != nil || !slices.Equal(got, want) {
		t.Errorf("the API server of %s has used, in this order: %v\n%s\nwant\n%s", m.Name, err, out,
			strings.Join(want, "\n"))
	}
}

// rotatePlugins gives all plugins another key. The API servers encrypt with it, and all values are rewritten, without
// clusterctl.
func rotatePlugins(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, m := range c.Lab.Machines {
		if _, err := m.Run(ctx, "echo two > /run/kms/key.new && mv /run/kms/key.new /run/kms/key"); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.Eventually(ctx, 2*time.Minute, func(ctx context.Context) error {
		for _, value := range storedValues(ctx, t, c) {
			if !strings.Contains(value, "made-by.kmsplugin.example.com") || !strings.Contains(value, `\x12\x03two`) {
				return fmt.Errorf("not written with the plugin's other key: %.160s", value)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// stopPlugin stops the plugin of one API server. The server can still read, states why it is not ready, and is ready
// again when the plugin returns.
func stopPlugin(ctx context.Context, t *testing.T, c *cluster.Cluster, servers []*kubernetes.Clientset) {
	t.Helper()
	first := c.Lab.Machines[0]
	if _, err := first.Run(ctx, "systemctl kill -s STOP kmsplugin"); err != nil {
		t.Fatal(err)
	}
	health := func(ctx context.Context, want string) error {
		out, err := servers[0].Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("it says %s (%w)", out, err)
		}
		return nil
	}
	if err := cluster.Eventually(ctx, 2*time.Minute,
		func(ctx context.Context) error { return health(ctx, "[-]kms-providers failed") }); err != nil {
		t.Error(err)
	}
	if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		one, err := servers[0].CoreV1().Secrets("default").Get(ctx, "kept-7", metav1.GetOptions{})
		if err == nil && string(one.Data["word"]) != "word-7" {
			err = fmt.Errorf("it reads %q", one.Data)
		}
		return err
	}); err != nil {
		t.Errorf("without its plugin: %v", err)
	}
	if _, err := first.Run(ctx, "systemctl kill -s CONT kmsplugin"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Eventually(ctx, time.Minute,
		func(ctx context.Context) error { return health(ctx, "[+]kms-providers ok") }); err != nil {
		t.Error(err)
	}
}
