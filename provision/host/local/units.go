package local

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"clusterctl/provision/host"
)

func (h *Host) systemd(ctx context.Context) (*dbus.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn != nil && h.conn.Connected() {
		return h.conn, nil
	}
	// The private socket works where no message bus runs; the connection outlives ctx.
	conn, err := dbus.NewSystemdConnectionContext(context.WithoutCancel(ctx))
	if err != nil {
		if conn, err = dbus.NewSystemConnectionContext(context.WithoutCancel(ctx)); err != nil {
			return nil, fmt.Errorf("reach systemd: %w", err)
		}
	}
	h.conn = conn
	return conn, nil
}

// Unit returns a unit's state.
func (h *Host) Unit(ctx context.Context, name string) (host.Unit, error) {
	conn, err := h.systemd(ctx)
	if err != nil {
		return host.Unit{}, err
	}
	p, err := conn.GetUnitPropertiesContext(ctx, name)
	if err != nil {
		return host.Unit{}, fmt.Errorf("look at unit %s: %w", name, err)
	}
	text := func(key string) string {
		s, _ := p[key].(string)
		return s
	}
	if text("LoadState") == "not-found" {
		return host.Unit{}, nil
	}
	reload, _ := p["NeedDaemonReload"].(bool)
	return host.Unit{Active: text("ActiveState"), Enabled: text("UnitFileState") == "enabled", NeedsReload: reload, Fragment: text("FragmentPath")}, nil
}

// Reload has systemd read unit files again.
func (h *Host) Reload(ctx context.Context) error {
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	return conn.ReloadContext(ctx)
}

// Enable makes a unit start with the machine.
func (h *Host) Enable(ctx context.Context, name string) error {
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	_, _, err = conn.EnableUnitFilesContext(ctx, []string{name}, false, true)
	return err
}

// Disable undoes Enable.
func (h *Host) Disable(ctx context.Context, name string) error {
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	_, err = conn.DisableUnitFilesContext(ctx, []string{name}, false)
	return err
}

// Start starts a unit and waits.
func (h *Host) Start(ctx context.Context, name string) error {
	return h.job(ctx, name, func(conn *dbus.Conn, done chan<- string) error {
		_, err := conn.StartUnitContext(ctx, name, "replace", done)
		return err
	})
}

// Restart restarts a unit and waits.
func (h *Host) Restart(ctx context.Context, name string) error {
	return h.job(ctx, name, func(conn *dbus.Conn, done chan<- string) error {
		_, err := conn.RestartUnitContext(ctx, name, "replace", done)
		return err
	})
}

// Stop stops a unit and waits.
func (h *Host) Stop(ctx context.Context, name string) error {
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	done := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, name, "replace", done); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", name, ctx.Err())
	}
}

// job asks systemd for something and waits until the unit is active. A unit that
// fails once may yet come up by its Restart= setting, so that only the deadline,
// or a unit that systemd has given up, is a failure.
func (h *Host) job(ctx context.Context, name string, ask func(*dbus.Conn, chan<- string) error) error {
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	// A unit that was given up before starts afresh.
	_ = conn.ResetFailedUnitContext(ctx, name)
	done := make(chan string, 1)
	if err := ask(conn, done); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	select {
	case result := <-done:
		if result == "done" {
			return nil
		}
	case <-ctx.Done():
		return h.failure(name, ctx.Err())
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		u, err := h.Unit(ctx, name)
		switch {
		case err == nil && u.Active == "active":
			return nil
		case err == nil && u.Active == "failed":
			return h.failure(name, errors.New("it ended and is not started again"))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return h.failure(name, ctx.Err())
		}
	}
}

func (h *Host) failure(name string, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "journalctl", "--no-pager", "-o", "cat", "-n", "8", "-u", name).Output()
	if err != nil || len(out) == 0 {
		return fmt.Errorf("%w: %s: %w", host.ErrUnit, name, cause)
	}
	return fmt.Errorf("%w: %s: %w; the journal says:\n%s", host.ErrUnit, name, cause, tail(string(out), 8))
}
