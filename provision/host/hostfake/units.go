// Package hostfake is a machine in memory that behaves: files, units that start and
// restart, images, an etcd membership. Tests of everything above a machine run on it.
package hostfake

import (
	"context"
	"fmt"

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

// Reload does nothing but to be noted.
func (h *Host) Reload(context.Context) error {
	defer h.lock()()
	h.did("daemon-reload")
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
func (h *Host) Start(_ context.Context, name string) error { return h.become(name, "start", "active") }

// Restart restarts a unit.
func (h *Host) Restart(_ context.Context, name string) error {
	return h.become(name, "restart", "active")
}

// Stop stops a unit.
func (h *Host) Stop(_ context.Context, name string) error { return h.become(name, "stop", "inactive") }

func (h *Host) become(name, verb, active string) error {
	if h.Starts != nil && verb != "stop" {
		h.Starts(name)
	}
	if err := h.before("%s %s", verb, name); err != nil {
		return err
	}
	defer h.lock()()
	h.did("%s %s", verb, name)
	if err := h.Fail[name]; err != nil && verb != "stop" {
		return fmt.Errorf("%w: %s: %w", host.ErrUnit, name, err)
	}
	u := h.units[name]
	u.Active = active
	var err error
	if name == "etcd.service" && verb != "stop" {
		if err = h.etcd(); err != nil {
			u.Active, err = "failed", fmt.Errorf("%w: %s: %w", host.ErrUnit, name, err)
		}
	}
	h.units[name] = u
	return err
}

// Die has a unit end, and not come up by itself.
func (h *Host) Die(unit string) { h.Become(unit, "failed") }

// Become has a unit get into a state by itself.
func (h *Host) Become(unit, active string) {
	defer h.lock()()
	u := h.units[unit]
	u.Active = active
	h.units[unit] = u
}
