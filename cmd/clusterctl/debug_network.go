package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/provision/host"
	"clusterctl/provision/packet"
	"clusterctl/provision/run"
)

func newDebugNetwork() *cobra.Command {
	var flags runFlags
	var protocol string
	var wait time.Duration
	c := &cobra.Command{
		Use:   "network FROM TO [FOLDER|FILE]",
		Short: "Send a packet, trace it over the machines, and report where it ends and why",
		Long: `Open one connection, or send one datagram, while the machines on its way watch their interfaces for it.

FROM is pod/NAMESPACE/NAME, node/NAME or outside, which is this computer. TO is pod/NAMESPACE/NAME:PORT,
service/NAMESPACE/NAME:PORT, node/NAME:PORT or ADDRESS:PORT. A namespace that is left out is default. A
connection is closed as soon as it is open; nothing is sent over it. A datagram has four bytes.

Exits with 0 when the packet arrives and with 1 when it does not.`,
		Example: `  clusterctl debug network pod/shop/web-0 service/shop/db:5432
  clusterctl debug network outside 192.0.2.80:443
  clusterctl debug network node/n1 service/kube-system/kube-dns:53 --protocol udp`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			if wait < time.Second || wait > host.MaxTraceTime {
				return fmt.Errorf("--wait is %s: from 1s to %s", wait, host.MaxTraceTime)
			}
			configuration, err := flags.loadOffline(c, args[2:])
			if err != nil {
				return err
			}
			engine, err := flags.engine(configuration, nil)
			if err != nil {
				return err
			}
			s, err := engine.Store.Read()
			if err != nil {
				return err
			}
			if s == nil {
				return errNoCluster
			}
			ctx, cancel := context.WithTimeout(c.Context(), objectsTimeout)
			defer cancel()
			live, err := connectAPI(s, configuration.Cluster)
			if err != nil {
				return err
			}
			cluster, err := live.Packets(ctx)
			if err != nil {
				return fmt.Errorf("ask the API who they are: %w", err)
			}
			route, err := packet.Resolve(cluster, args[0], args[1], protocol)
			if err != nil {
				return err
			}
			walk, err := tracePacket(c.Context(), engine, cluster, route, wait)
			if err != nil {
				return err
			}
			if flags.json {
				err = printJSON(c, walk)
			} else {
				err = printWalk(c.OutOrStdout(), route, walk)
			}
			if err == nil && !walk.Arrived {
				return exitCode(1)
			}
			return err
		},
	}
	flags.configFlags.add(c)
	flags.addReach(c)
	c.Flags().StringVar(&protocol, "protocol", "tcp", "tcp or udp")
	c.Flags().DurationVar(&wait, "wait", 4*time.Second, "how long the packet is watched for")
	c.Flags().BoolVar(&flags.json, "json", false, "as JSON")
	return c
}

// tracePacket sends the packet while the machines watch for it.
func tracePacket(
	ctx context.Context,
	engine *run.Engine,
	cluster *packet.Cluster,
	r *packet.Route,
	wait time.Duration,
) (packet.Walk, error) {
	q := host.Trace{
		Protocol: r.Protocol, To: r.Target, Ports: r.Ports(), Mark: rand.Uint32(), Duration: wait, From: r.Source,
		Routes: r.Addresses(),
	}
	var sent packet.SendOutcome
	traced, err := engine.Trace(ctx, q, r.Nodes(), r.Sender, func(ctx context.Context) { sent = sendLocally(ctx, q) })
	if err != nil {
		return packet.Walk{}, err
	}
	var seen []packet.NodeReport
	for _, t := range traced {
		seen = append(seen, packet.NodeReport{Node: t.Node, Traced: t.Traced, Error: t.Error})
		if t.Node == r.Sender {
			sent = packet.SendOutcome{Outcome: t.Outcome, Reason: t.Reason, Local: t.Local}
		}
	}
	return packet.Read(cluster, r, sent, seen), nil
}

// sendLocally sends the traced packet from this computer.
func sendLocally(ctx context.Context, q host.Trace) packet.SendOutcome {
	ctx, cancel := context.WithTimeout(ctx, q.Duration*3/4)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, strings.ToLower(q.Protocol), q.To.String())
	if err != nil {
		return packet.SendOutcome{Outcome: outcomeOfError(err), Reason: err.Error()}
	}
	defer conn.Close()
	sent := packet.SendOutcome{Outcome: host.OutcomeConnected}
	sent.Local, _ = netip.ParseAddrPort(conn.LocalAddr().String())
	if q.Protocol == host.UDP {
		deadline, _ := ctx.Deadline()
		_ = conn.SetDeadline(deadline)
		_, err := conn.Write([]byte{byte(q.Mark >> 24), byte(q.Mark >> 16), byte(q.Mark >> 8), byte(q.Mark)})
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if err != nil {
			sent.Outcome, sent.Reason = outcomeOfError(err), err.Error()
		}
	}
	return sent
}

func outcomeOfError(err error) string {
	var slow net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return host.OutcomeRefused
	case errors.As(err, &slow) && slow.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return host.OutcomeSilent
	}
	return host.OutcomeFailed
}

func printWalk(out io.Writer, r *packet.Route, walk packet.Walk) error {
	fmt.Fprintf(out, "%s to %s (%s %s)\n\n", r.From, r.To, r.Protocol, r.Target)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, h := range walk.Hops {
		way := "in"
		if h.IsOutgoing {
			way = "out"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s → %s\t%s\n", h.Node, h.Link, way, h.Kind, h.From, h.To, h.Note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(walk.Hops) > 0 {
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, walk.Verdict)
	for _, reason := range walk.Reasons {
		fmt.Fprintln(out, "  - "+reason)
	}
	for _, u := range walk.MissingReports {
		fmt.Fprintln(out, "Not watched: "+u)
	}
	return nil
}
