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

// These times ensure that two machines never hold the address at once: the holder's kernel has dropped the address
// before another machine may take the lease.
const (
	leaseTime   = 4 * time.Second         // silence after which another machine takes the lease
	hold        = 2500 * time.Millisecond // silence after which the holder drops the address itself
	period      = 500 * time.Millisecond  // interval of checks
	callTimeout = time.Second             // limit of one request
	unwell      = 1500 * time.Millisecond // how long the local API server may fail before the address moves
)

// reannounce is how often the holder announces the address again, for neighbours that missed it.
const reannounce = 10 * time.Second

// daemon is the address daemon of one machine.
type daemon struct {
	log    *slog.Logger
	claim  floating.Claim
	link   holder
	leases floating.API // connects to any API server
	here   floating.API // connects to the local API server
	seen   atomic.Bool
	held   prometheus.Gauge

	has       bool
	renewed   time.Time // start of the last successful renewal
	wellAt    time.Time // when the local API server was last ready
	announced time.Time
	loud      int // announcements left to make in a row
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
	link, err := floating.Beside(own, address)
	if err != nil {
		return err
	}
	d := &daemon{log: env.Log, claim: floating.Claim{Self: cfg.NodeName, Patience: leaseTime}, link: link,
		held: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "address_held", Help: "1 while this machine has the virtual address."},
		)}
	if d.leases, err = connect(cfg.Kubeconfig, cfg.APIServers); err != nil {
		return err
	}
	if d.here, err = connect(cfg.Kubeconfig, []string{net.JoinHostPort(own.String(), "6443")}); err != nil {
		return err
	}
	env.Metrics.MustRegister(d.held)
	env.Health.Ready("lease", func() error {
		if !d.seen.Load() {
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
	tick := time.NewTicker(period)
	defer tick.Stop()
	for last := ""; ; {
		problem := ""
		if err := d.look(ctx); err != nil {
			problem = err.Error()
		}
		if problem != last && ctx.Err() == nil {
			d.log.Warn("look after the virtual address", "problem", problem)
			last = problem
		}
		if d.has && time.Since(d.renewed) > hold {
			d.drop("the lease could not be renewed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look runs one round: it checks the local API server and the lease, and acts on the result.
func (d *daemon) look(ctx context.Context) error {
	problem := d.well(ctx)
	if problem == nil {
		d.wellAt = time.Now()
	}
	started := time.Now()
	lease, err := d.get(ctx)
	if err != nil {
		return errors.Join(problem, err)
	}
	d.seen.Store(true)
	switch next := d.claim.Next(lease, d.isWell(), started); next {
	case floating.Release:
		d.drop("the API server on this machine is not ready")
		_, err = d.put(ctx, lease, "")
	case floating.Keep, floating.Take:
		started = time.Now()
		if _, err = d.put(ctx, lease, d.claim.Self); err == nil {
			d.renewed = started
			err = d.hold()
		}
	case floating.Wait:
		if d.has {
			d.drop("another machine has the lease")
		}
	}
	return errors.Join(problem, err)
}

// isWell reports whether the local API server is ready enough. The holder may be unready for a moment; a machine that
// takes the address may not.
func (d *daemon) isWell() bool {
	if d.wellAt.IsZero() {
		return false
	}
	if d.has {
		return time.Since(d.wellAt) < unwell
	}
	return time.Since(d.wellAt) < callTimeout
}

func (d *daemon) well(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := d.here.Failed(d.here.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()); err != nil {
		return fmt.Errorf("ask the API server on this machine whether it is ready: %w", err)
	}
	return nil
}

func (d *daemon) get(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := d.leases.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the lease %s: %w", leaseName, d.leases.Failed(err))
	}
	return lease, nil
}

// put writes the lease with a holder. It returns an error if another machine has written the lease in the meantime.
func (d *daemon) put(ctx context.Context, lease *coordinationv1.Lease, who string) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	leases := d.leases.CoordinationV1().Leases(metav1.NamespaceSystem)
	next := floating.Written(lease, leaseName, who, leaseTime)
	var err error
	if lease == nil {
		lease, err = leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		lease, err = leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("write the lease %s: %w", leaseName, d.leases.Failed(err))
	}
	return lease, nil
}

// hold adds the address or extends its lifetime in the kernel, and announces it to the neighbours.
func (d *daemon) hold() error {
	elapsed := time.Since(d.renewed)
	if elapsed > callTimeout {
		return nil // the process was suspended in the meantime: another machine may have the lease by now
	}
	if err := d.link.Set(lifetime(elapsed)); err != nil {
		return err
	}
	if !d.has {
		d.log.Info("the virtual address is here", "lease", leaseName)
		d.has, d.loud = true, 6
		d.held.Set(1)
	}
	if d.loud > 0 || time.Since(d.announced) > reannounce {
		d.loud, d.announced = max(d.loud-1, 0), time.Now()
		return d.link.Announce()
	}
	return nil
}

func (d *daemon) drop(reason string) {
	if err := d.link.Remove(); err != nil {
		d.log.Error("remove the virtual address; the kernel itself removes it in a moment", "error", err)
	}
	if d.has {
		d.log.Info("the virtual address is given up", "reason", reason)
	}
	d.has = false
	d.held.Set(0)
}

// resign removes the address and releases the lease, so that another machine can take it at once.
func (d *daemon) resign(ctx context.Context) {
	had := d.has
	d.drop("stopping")
	if !had {
		return
	}
	lease, err := d.get(ctx)
	if err == nil && lease != nil && floating.Holder(lease) == d.claim.Self {
		_, err = d.put(ctx, lease, "")
	}
	if err != nil {
		d.log.Warn("give the lease up; another machine takes it when it has run out", "error", err)
	}
}

// lifetime returns how long the kernel should keep the address, given the time since the renewal was sent. The kernel
// counts whole seconds and may be up to a second late.
func lifetime(elapsed time.Duration) time.Duration {
	if elapsed <= period {
		return 2 * time.Second
	}
	return time.Second
}
