// Package address keeps the cluster's virtual address on one machine of the control plane: the machine that holds a
// lease. A machine holds the lease only while its own API server is ready. A holder that dies, hangs or is cut off
// loses the address, because the kernel keeps it only for a moment without renewal. The API server serves at the
// address.
package address

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/client"
	"clusterctl/daemons/config"
	"clusterctl/daemons/floating"
	"clusterctl/daemons/run"
)

// leaseName is the name of the lease in kube-system.
const leaseName = "kube-address"

// These times ensure that two machines never have the address at the same time: the holder of the lease removes the
// address after holdTime, before another machine may take the lease after leaseTime.
const (
	leaseTime     = 4 * time.Second         // silence after which another machine takes the lease
	holdTime      = 2500 * time.Millisecond // silence after which the holder drops the address itself
	checkInterval = 500 * time.Millisecond  // interval of checks
	callTimeout   = time.Second             // limit of one request
	unreadyLimit  = 1500 * time.Millisecond // how long the local API server may fail before the address moves
)

// announceInterval is how often the holder announces the address again, for neighbours that missed it.
const announceInterval = 10 * time.Second

// daemon is the address daemon of one machine.
type daemon struct {
	log          *slog.Logger
	claim        floating.Claim
	link         holder
	leases       floating.API // connects to any API server
	localAPI     floating.API // connects to the local API server
	hasReadLease atomic.Bool
	heldGauge    prometheus.Gauge

	hasAddress        bool
	renewedAt         time.Time // start of the last successful renewal
	readyAt           time.Time // when the local API server was last ready
	announcedAt       time.Time
	announcementsLeft int // announcements left to make in a row
}

// holder is the machine's network interface.
type holder interface {
	Set(lifetime time.Duration) error
	Remove() error
	Announce() error
}

// Run holds the address while this machine holds the lease. It removes the address at the start and at the end.
func Run(ctx context.Context, cfg config.Address, env run.Env) error {
	address, err := netip.ParseAddr(cfg.Address)
	if err != nil {
		return fmt.Errorf("read --address: %w", err)
	}
	own, err := netip.ParseAddr(cfg.NodeIP)
	if err != nil {
		return fmt.Errorf("read --node-ip: %w", err)
	}
	if cfg.NodeName == "" {
		return errors.New("--node-name is missing: leases are held under it")
	}
	link, err := floating.FindByAddress(own, address)
	if err != nil {
		return err
	}
	d := &daemon{log: env.Log, claim: floating.Claim{Self: cfg.NodeName, MaxSilence: leaseTime}, link: link,
		heldGauge: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "address_held", Help: "1 while this machine has the virtual address."},
		)}
	if d.leases, err = connect(cfg.Kubeconfig, cfg.APIServers); err != nil {
		return err
	}
	if d.localAPI, err = connect(cfg.Kubeconfig, []string{net.JoinHostPort(own.String(), "6443")}); err != nil {
		return err
	}
	env.Metrics.MustRegister(d.heldGauge)
	env.Health.AddReady("lease", func() error {
		if !d.hasReadLease.Load() {
			return errors.New("who holds the address is not known yet")
		}
		return nil
	})
	g, ctx := errgroup.WithContext(ctx)
	if cfg.HealthAddress != "" {
		ln, err := net.Listen("tcp", cfg.HealthAddress)
		if err != nil {
			return fmt.Errorf("listen for health checks: %w", err)
		}
		g.Go(func() error { return run.Serve(ctx, ln, env.Local(), nil, time.Second, env.Log) })
	}
	g.Go(func() error { return d.run(ctx) })
	return g.Wait()
}

func connect(kubeconfig string, servers []string) (floating.API, error) {
	return floating.Connect(client.Options{Kubeconfig: kubeconfig, APIServers: servers, UserAgent: "address"})
}

func (d *daemon) run(ctx context.Context) error {
	// Remove an address that an earlier process left behind and that is no longer renewed.
	if err := d.link.Remove(); err != nil {
		return err
	}
	defer d.resign(context.WithoutCancel(ctx))
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for last := ""; ; {
		problem := ""
		if err := d.checkLease(ctx); err != nil {
			problem = err.Error()
		}
		if problem != last && ctx.Err() == nil {
			d.log.Warn("hold the virtual address", "problem", problem)
			last = problem
		}
		if d.hasAddress && time.Since(d.renewedAt) > holdTime {
			d.removeAddress("the lease could not be renewed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// checkLease runs one round: it checks the local API server and the lease, and acts on the result.
func (d *daemon) checkLease(ctx context.Context) error {
	problem := d.checkReady(ctx)
	if problem == nil {
		d.readyAt = time.Now()
	}
	started := time.Now()
	lease, err := d.readLease(ctx)
	if err != nil {
		return errors.Join(problem, err)
	}
	d.hasReadLease.Store(true)
	switch next := d.claim.Next(lease, d.isReady(), started); next {
	case floating.Release:
		d.removeAddress("the API server on this machine is not ready")
		_, err = d.writeLease(ctx, lease, "")
	case floating.Keep, floating.Take:
		started = time.Now()
		if _, err = d.writeLease(ctx, lease, d.claim.Self); err == nil {
			d.renewedAt = started
			err = d.keepAddress()
		}
	case floating.Wait:
		if d.hasAddress {
			d.removeAddress("another machine has the lease")
		}
	}
	return errors.Join(problem, err)
}

// isReady reports whether the local API server is ready enough. The holder may be unready for a moment; a machine that
// takes the address may not.
func (d *daemon) isReady() bool {
	if d.readyAt.IsZero() {
		return false
	}
	if d.hasAddress {
		return time.Since(d.readyAt) < unreadyLimit
	}
	return time.Since(d.readyAt) < callTimeout
}

func (d *daemon) checkReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := d.localAPI.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	if err := d.localAPI.CloseIdleOnError(err); err != nil {
		return fmt.Errorf("ask the API server on this machine whether it is ready: %w", err)
	}
	return nil
}

func (d *daemon) readLease(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := d.leases.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the lease %s: %w", leaseName, d.leases.CloseIdleOnError(err))
	}
	return lease, nil
}

// writeLease writes the lease with a holder. It returns an error if another machine has written the lease in the
// meantime.
func (d *daemon) writeLease(
	ctx context.Context,
	lease *coordinationv1.Lease,
	holder string,
) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	leases := d.leases.CoordinationV1().Leases(metav1.NamespaceSystem)
	next := floating.WithHolder(lease, leaseName, holder, leaseTime)
	var err error
	if lease == nil {
		lease, err = leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		lease, err = leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("write the lease %s: %w", leaseName, d.leases.CloseIdleOnError(err))
	}
	return lease, nil
}

// keepAddress adds the address or extends its lifetime in the kernel, and announces it to the neighbours.
func (d *daemon) keepAddress() error {
	elapsed := time.Since(d.renewedAt)
	if elapsed > callTimeout {
		return nil // the process was suspended in the meantime: another machine may have the lease by now
	}
	if err := d.link.Set(lifetime(elapsed)); err != nil {
		return err
	}
	if !d.hasAddress {
		d.log.Info("the virtual address is here", "lease", leaseName)
		d.hasAddress, d.announcementsLeft = true, 6
		d.heldGauge.Set(1)
	}
	if d.announcementsLeft > 0 || time.Since(d.announcedAt) > announceInterval {
		d.announcementsLeft, d.announcedAt = max(d.announcementsLeft-1, 0), time.Now()
		return d.link.Announce()
	}
	return nil
}

func (d *daemon) removeAddress(reason string) {
	if err := d.link.Remove(); err != nil {
		d.log.Error("remove the virtual address; the kernel itself removes it in a moment", "error", err)
	}
	if d.hasAddress {
		d.log.Info("the virtual address is given up", "reason", reason)
	}
	d.hasAddress = false
	d.heldGauge.Set(0)
}

// resign removes the address and releases the lease, so that another machine can take it at once.
func (d *daemon) resign(ctx context.Context) {
	hadAddress := d.hasAddress
	d.removeAddress("stopping")
	if !hadAddress {
		return
	}
	lease, err := d.readLease(ctx)
	if err == nil && lease != nil && floating.Holder(lease) == d.claim.Self {
		_, err = d.writeLease(ctx, lease, "")
	}
	if err != nil {
		d.log.Warn("give the lease up; another machine takes it when it has run out", "error", err)
	}
}

// lifetime returns how long the kernel should keep the address, given the time since the renewal was sent. The kernel
// counts whole seconds and may be up to a second late.
func lifetime(elapsed time.Duration) time.Duration {
	if elapsed <= checkInterval {
		return 2 * time.Second
	}
	return time.Second
}
