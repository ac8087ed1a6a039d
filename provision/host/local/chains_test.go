package local

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"clusterctl/tests/lab/netns"
)

// The cleanup removes the service chains that a node leaves behind, and keeps the rules of others.
// Proves P07.
func TestServiceChainsAreRemoved(t *testing.T) {
	stack := netns.New(t)
	run := func(line string) (string, error) {
		words := strings.Fields(line)
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s: %s", line, out)
		}
		return string(out), nil
	}
	if err := stack.Do(func() error {
		for _, line := range []string{"iptables -t nat -N KUBE-SERVICES", "iptables -t nat -N " +
			"KUBE-SVC-A", "iptables -t nat -N MINE", "iptables -t nat -A PREROUTING -j KUBE-SERVICES",
			"iptables -t nat -A PREROUTING -j MINE", "iptables -t nat -A KUBE-SERVICES -j " +
				"KUBE-SVC-A", "ip6tables -N KUBE-SERVICES"} {
			if _, err := run(line); err != nil {
				return err
			}
		}
		prefixes := []string{"KUBE-SERVICES", "KUBE-SVC-"}
		if err := clearChains(t.Context(), prefixes); err != nil {
			return err
		}
		for _, program := range []string{"iptables", "ip6tables"} {
			if found, _, err := listChains(t.Context(), program, prefixes); err != nil || len(found) > 0 {
				return fmt.Errorf("%s has %v, %v", program, found, err)
			}
		}
		out, err := run("iptables -t nat -S PREROUTING")
		if want := "-P PREROUTING ACCEPT\n-A PREROUTING -j MINE\n"; err == nil && out != want {
			return fmt.Errorf("left is %q", out)
		}
		if err != nil {
			return err
		}
		// The other owner's chain is in nat. The filter table of ip6 was only created for a deleted chain, so it is
		// deleted too.
		if out, err = run("nft list tables"); err == nil && out != "table ip nat\n" {
			return fmt.Errorf("tables that are left: %q", out)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A table is not empty if its owner has set a policy that drops packets, even without rules.
func TestTablesWithADropPolicyStay(t *testing.T) {
	stack := netns.New(t)
	if err := stack.Do(func() error {
		for _, line := range []string{"iptables -P FORWARD DROP", "iptables -N KUBE-FORWARD"} {
			words := strings.Fields(line)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %s", line, out)
			}
		}
		if err := clearChains(t.Context(), []string{"KUBE-"}); err != nil {
			return err
		}
		out, err := exec.Command("iptables", "-S").CombinedOutput()
		if want := "-P INPUT ACCEPT\n-P FORWARD DROP\n-P OUTPUT ACCEPT\n"; err == nil && string(out) != want {
			return fmt.Errorf("left is %q", out)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
