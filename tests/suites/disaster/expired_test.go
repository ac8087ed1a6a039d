package disaster

import (
	"context"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/certs"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
)

// testAllExpired tests a control plane of one machine, and then of three. Every certificate on the machines has
// expired, and they were rebooted since, so that no earlier connections exist.
func testAllExpired(ctx context.Context, t *testing.T) {
	t.Run("one", func(t *testing.T) {
		testExpired(ctx, t, "expired-one", []string{"c1=10.99.0.11", "n1=10.99.0.21"}, `"1" = "10.99.0.11"`)
	})
	t.Run("three", func(t *testing.T) {
		testExpired(ctx, t, "expired-three",
			[]string{"c1=10.99.0.11", "c2=10.99.0.12", "c3=10.99.0.13", "n1=10.99.0.21"},
			`"1" = "10.99.0.11", "2" = "10.99.0.12", "3" = "10.99.0.13"`)
	})
}

func testExpired(ctx context.Context, t *testing.T, name string, list []string, control string) {
	c := startMachines(ctx, t, name, list, fmt.Sprintf(`cluster "expired" {}

machine "c" {
  for_each = { %s }
  address  = each.value
  roles    = ["control-plane"]
  ssh { user = "root" }
}

machine "n" {
  name    = "n1"
  address = "10.99.0.21"
  roles   = ["node"]
  ssh { user = "root" }
}

object "v1" "ConfigMap" "kept" {
  data = { a = "b" }
}
`, control))
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	until := time.Now()
	for _, m := range c.Lab.Machines {
		until = expireAll(ctx, t, c.Lab, m)
	}
	for _, m := range c.Lab.Machines {
		if _, err := m.Run(ctx, "systemctl restart --no-block etcd kube-apiserver kube-scheduler "+
			"kube-controller-manager kubelet kube-proxy kube-network kube-dns 2>/dev/null; true"); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := c.KubectlCommand(ctx, "get", "nodes").CombinedOutput()
		if err == nil || time.Now().Before(until) {
			return fmt.Errorf("the API is served: %s", out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Clusterctl(ctx, "plan").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "mended first, with all other machines") {
		t.Errorf("the plan does not say what is mended first: %v\n%s", err, out)
	}
	clusterctl(ctx, t, c, "apply", "-auto-approve")
	checkDeclared(ctx, t, c)
	if out, err := c.KubectlCommand(ctx, "get", "configmap", "kept", "-o",
		"jsonpath={.data.a}").CombinedOutput(); err != nil ||
		string(out) != "b" {
		t.Errorf("what was stored: %v, %s", err, out)
	}
	if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := c.KubectlCommand(ctx, "wait", "--for=condition=Ready", "node/n1", "--timeout=1s").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		t.Errorf("the node: %v", err)
	}
}

// shortLifetime is the remaining lifetime of the certificates. The daemons must be able to start with them.
const shortLifetime = 5 * time.Second

// expireAll replaces all certificates of a machine with certificates that expire soon, and returns the time.
func expireAll(ctx context.Context, t *testing.T, lab *machines.Lab, m *machines.Machine) time.Time {
	t.Helper()
	read := func(m *machines.Machine, path string) []byte {
		text, err := m.Run(ctx, "cat "+path)
		if err != nil {
			t.Fatal(err)
		}
		return []byte(text)
	}
	write := func(path string, text []byte) {
		cmd := m.SSH(ctx, "root", "cat > "+path)
		cmd.Stdin = strings.NewReader(string(text))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("write %s of %s: %v: %s", path, m.Name, err, out)
		}
	}
	now := time.Now()
	var authorities []certs.Pair
	for _, path := range []string{"/etc/kubernetes/pki/ca", "/etc/kubernetes/pki/etcd/ca",
		"/etc/kubernetes/pki/front-proxy-ca"} {
		authorities = append(authorities,
			certs.Pair{Cert: read(lab.Machine("c1"), path+".crt"), Key: read(lab.Machine("c1"), path+".key")})
	}
	paths, err := m.Run(ctx, "find /etc/kubernetes -name '*.crt' -o -name '*.conf'")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(paths) {
		text := read(m, path)
		if strings.HasSuffix(path, ".crt") {
			if leaf := shortLived(t, authorities, text, now); leaf != nil {
				write(path, leaf)
			}
			continue
		}
		config, err := clientcmd.Load(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, user := range config.AuthInfos {
			user.ClientCertificateData = shortLived(t, authorities, user.ClientCertificateData, now)
		}
		if text, err = clientcmd.Write(*config); err != nil {
			t.Fatal(err)
		}
		write(path, text)
	}
	return now.Add(shortLifetime)
}

// shortLived returns a certificate like another one that expires soon, by one of the authorities. It returns nil for a
// CA.
func shortLived(t *testing.T, authorities []certs.Pair, text []byte, now time.Time) []byte {
	leaf, err := certs.ParseCert(text)
	if err != nil {
		t.Fatal(err)
	}
	if leaf.IsCA {
		return nil
	}
	hosts := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	for _, ca := range authorities {
		authority, err := certs.ParseCert(ca.Cert)
		if err != nil {
			t.Fatal(err)
		}
		if leaf.CheckSignatureFrom(authority) != nil {
			continue
		}
		der, err := certs.Sign(
			ca,
			certs.Request{
				CommonName:    leaf.Subject.CommonName,
				Organizations: leaf.Subject.Organization,
				Hosts:         hosts,
				Usages:        leaf.ExtKeyUsage,
				Lifetime:      shortLifetime,
			},
			leaf.PublicKey,
			now,
		)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	t.Fatalf("no authority has signed the certificate of %s", leaf.Subject.CommonName)
	return nil
}
