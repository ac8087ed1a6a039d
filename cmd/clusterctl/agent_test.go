package main

import (
	"os"
	"syscall"
	"testing"

	"clusterctl/provision/host"
)

func TestTheAgentSetsItsUmaskAndUsesNoProxy(t *testing.T) {
	usual := syscall.Umask(0o077)
	defer syscall.Umask(usual)
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	t.Setenv("no_proxy", "example")
	c := newAgent()
	c.SetArgs(nil)
	if err := c.ExecuteContext(t.Context()); err != nil { // its input is empty
		t.Fatal(err)
	}
	if got := syscall.Umask(0o077); got != 0o022 {
		t.Errorf("the agent runs with umask %03o", got)
	}
	for _, name := range host.ProxyVariables {
		if value, ok := os.LookupEnv(name); ok {
			t.Errorf("the agent kept the proxy variable %s=%s", name, value)
		}
	}
}
