package roll

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
)

const virtualAddress = "10.99.0.100"

// If the machine that holds the virtual address loses power, another one takes over the address.
// Proves S11.
func TestVirtualAddressesMoveWhenTheirHolderDies(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), applyTimeout)
	defer cancel()
	c := startCluster(ctx, t, "address", strings.Replace(clusterConfig, "{}",
		"{\n  api { endpoint = \""+virtualAddress+":6443\" }\n}", 1))
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DialContext: c.Lab.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answers := func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+virtualAddress+":6443/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the API server at the virtual address says %s", response.Status)
		}
		return nil
	}
	if err := cluster.Eventually(ctx, 30*time.Second, answers); err != nil {
		t.Fatal(err)
	}
	first := addressHolder(ctx, t, c.Lab.Machines)
	for _, m := range c.Lab.Machines {
		if err := cluster.CheckDocumented(ctx, m, cluster.ControlPlane, cluster.WithDNS,
			cluster.VirtualAddress); err != nil {
			t.Error(err)
		}
	}
	cut := time.Now()
	if err := first.PowerCut(ctx); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Eventually(ctx, 30*time.Second, answers); err != nil {
		t.Fatalf("the address does not answer 30 s after its holder %s has died: %v", first.Name, err)
	}
	t.Logf("the virtual address answers %.1f s after its holder's power was cut", time.Since(cut).Seconds())
	var rest []*machines.Machine
	for _, m := range c.Lab.Machines {
		if m != first {
			rest = append(rest, m)
		}
	}
	addressHolder(ctx, t, rest)
	if _, err := cluster.Output(c.KubectlCommand(ctx, "create", "configmap", "after",
		"--namespace=default")); err != nil {
		t.Errorf("a write through the address: %v", err)
	}
	// The former holder returns without the address.
	if err := first.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		_, err := first.Run(ctx, "systemctl is-active kube-address && curl -ksf https://127.0.0.1:6443/readyz")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if now := addressHolder(ctx, t, c.Lab.Machines); now == first {
		t.Errorf("%s has taken the address back from a holder that is well", first.Name)
	}
}

// addressHolder waits until exactly one of the machines has the virtual address.
func addressHolder(ctx context.Context, t *testing.T, list []*machines.Machine) (one *machines.Machine) {
	t.Helper()
	if err := cluster.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		var names []string
		for _, m := range list {
			out, err := m.Run(ctx, "ip -o address show")
			if err != nil {
				return err
			}
			if strings.Contains(out, " "+virtualAddress+"/") {
				names, one = append(names, m.Name), m
			}
		}
		if len(names) != 1 {
			return fmt.Errorf("%v have the address, want one machine", names)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return one
}
