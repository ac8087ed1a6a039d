package main

import (
	"syscall"
	"testing"
)

func TestTheAgentSetsItsUmask(t *testing.T) {
	usual := syscall.Umask(0o077)
	defer syscall.Umask(usual)
	c := newAgent()
	c.SetArgs(nil)
	if err := c.ExecuteContext(t.Context()); err != nil { // its input is at its end
		t.Fatal(err)
	}
	if got := syscall.Umask(0o077); got != 0o022 {
		t.Errorf("the agent runs with umask %03o", got)
	}
}
