package hostfake

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"clusterctl/provision/host"
)

const unitDir = "/etc/systemd/system/"

// Unit returns a unit's state.
func (h *Host) Unit(_ context.Context, name string) (host.Unit, error) {
	defer h.lock()()
	u := h.units[name]
	if _, ok := h.files[unitDir+name]; ok {
		u.Fragment = unitDir + name
	}
	if u.Fragment != "" && u.Active == "" {
		u.Active = "inactive"
	}
	return u, nil
}

// Reload only logs the call.
func (h *Host) Reload(context.Context) error {
	defer h.lock()()
	h.record("daemon-reload")
	return nil
}

// Enable enables a unit.
func (h *Host) Enable(_ context.Context, name string) error {
	defer h.lock()()
	u := h.units[name]
	u.Enabled = true
	h.units[name] = u
	return nil
}

// Disable disables a unit.
func (h *Host) Disable(_ context.Context, name string) error {
	defer h.lock()()
	u := h.units[name]
	u.Enabled = false
	h.units[name] = u
	return nil
}

// Start starts a unit.
func (h *Host) Start(ctx context.Context, name string) error {
	return h.setState(ctx, name, "start", "active")
}

// Restart restarts a unit.
func (h *Host) Restart(ctx context.Context, name string) error {
	return h.setState(ctx, name, "restart", "active")
}

// Stop stops a unit.
func (h *Host) Stop(ctx context.Context, name string) error {
	return h.setState(ctx, name, "stop", "inactive")
}

func (h *Host) setState(ctx context.Context, name, verb, active string) error {
	if h.OnStart != nil && verb != "stop" {
		h.OnStart(name)
	}
	if err := h.beforeChange("%s %s", verb, name); err != nil {
		return err
	}
	program, runs := h.runProgram(ctx, name, verb)
	defer h.lock()()
	h.record("%s %s", verb, name)
	if err := h.StartErrors[name]; err != nil && verb != "stop" {
		return fmt.Errorf("%w: %s: %w", host.ErrUnit, name, err)
	}
	u := h.units[name]
	u.Active, u.Started, u.Program = active, time.Now(), ""
	var err error
	if verb != "stop" {
		h.processes++
		u.Process, u.Program = h.processes, program
		if err = runs; err != nil {
			u.Active, err = "activating", fmt.Errorf("%w: %s: %w", host.ErrUnit, name, err)
			h.units[name] = u
			return err
		}
	}
	if name == "etcd.service" && verb != "stop" {
		if err = h.startEtcd(); err != nil {
			u.Active, err = "failed", fmt.Errorf("%w: %s: %w", host.ErrUnit, name, err)
		}
	}
	h.units[name] = u
	return err
}

// runProgram returns the program in a unit's file, its link resolved, and the error of RunProgram.
func (h *Host) runProgram(ctx context.Context, name, verb string) (program string, err error) {
	unlock := h.lock()
	_, exec, _ := strings.Cut(string(h.files[unitDir+name].content), "ExecStart=")
	link, _, _ := strings.Cut(exec, " ")
	program = cmp.Or(h.files[link].info.Target, link)
	unlock()
	if h.RunProgram != nil && verb != "stop" {
		err = h.RunProgram(ctx, name, program, func() { h.SetUnitState(name, "failed") })
	}
	return program, err
}

// JournalTail returns a text for units that have failed.
func (h *Host) JournalTail(_ context.Context, name string) string {
	defer h.lock()()
	if h.units[name].Active == "failed" {
		return name + " says why"
	}
	return ""
}

// FailUnit makes a unit fail and stay down.
func (h *Host) FailUnit(unit string) { h.SetUnitState(unit, "failed") }

// SetUnitState changes a unit's state without a request, as a crash would.
func (h *Host) SetUnitState(unit, active string) {
	defer h.lock()()
	u := h.units[unit]
	u.Active = active
	h.units[unit] = u
}
