package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/daemons/dashboard"
	"clusterctl/daemons/run"
)

// dashboardCommand is the command that serves the dashboard with the credentials of a kubeconfig.
type dashboardCommand struct {
	kubeconfig string
	context    string
	address    string
	noBrowser  bool
	verbosity  int
}

func newDashboard() *cobra.Command {
	d := &dashboardCommand{}
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Show the cluster in the browser, with the rights of a kubeconfig",
		Long: `Serve the dashboard on a port of this machine until interrupted, and open it in the browser.

The dashboard has the rights of the kubeconfig's user. Only the browser that opens the printed link can use it: the link
is valid once, for a minute. Press Enter for another link.`,
		Example: `  clusterctl dashboard
  clusterctl dashboard --kubeconfig ~/.kube/config --context shop
  clusterctl dashboard --no-browser --address 127.0.0.1:8000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return d.run(c) },
	}
	c.Flags().StringVar(&d.kubeconfig, "kubeconfig", "", "`file` with credentials; KUBECONFIG or ~/.kube/config when "+
		"empty")
	c.Flags().StringVar(&d.context, "context", "", "`name` of the kubeconfig's context; the current one when empty")
	c.Flags().StringVar(&d.address, "address", "127.0.0.1:0", "loopback `address` and port to serve on; a free port "+
		"when 0")
	c.Flags().BoolVar(&d.noBrowser, "no-browser", false, "only print the link")
	c.Flags().IntVarP(&d.verbosity, "v", "v", 0, "how much to log to stderr: 0 only problems, 2 sign-ins, 4 details")
	_ = c.RegisterFlagCompletionFunc("context", d.completeContexts) // never fails, because the flag exists
	return c
}

// config returns how to reach the API server, and the name of the context.
func (d *dashboardCommand) config() (*rest.Config, string, error) {
	loader := d.loader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	name := d.context
	if name == "" {
		name = raw.CurrentContext
	}
	if c := raw.Contexts[name]; c != nil && c.Cluster != "" {
		name = c.Cluster
	}
	return config, name, nil
}

func (d *dashboardCommand) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = d.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: d.context})
}

func (d *dashboardCommand) completeContexts(_ *cobra.Command, _ []string, toComplete string) (list []string,
	_ cobra.ShellCompDirective) {
	raw, err := d.loader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for name := range raw.Contexts {
		if strings.HasPrefix(name, toComplete) {
			list = append(list, name)
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// listen returns a listener on the loopback interface. Other addresses are refused, because the dashboard is served
// without TLS.
func (d *dashboardCommand) listen() (net.Listener, error) {
	host, port, err := net.SplitHostPort(d.address)
	if err != nil {
		return nil, fmt.Errorf("-address=%s: it is an address and a port, such as 127.0.0.1:8000", d.address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("-address=%s: it is not an address of the loopback interface, such as 127.0.0.1",
			d.address)
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

func (d *dashboardCommand) run(c *cobra.Command) error {
	config, cluster, err := d.config()
	if err != nil {
		return err
	}
	ln, err := d.listen()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	if d.verbosity > 0 {
		log = newLog(d.verbosity)
	}
	address := ln.Addr().(*net.TCPAddr)
	port := strconv.Itoa(address.Port)
	own := map[string]bool{}
	for _, host := range []string{"localhost", "127.0.0.1", "::1", address.IP.String()} {
		own[net.JoinHostPort(host, port)] = true
		own[host] = own[host] || port == "80"
	}
	board := dashboard.New(dashboard.Config{
		API: config, SignIn: dashboard.SignInByCommand, Cluster: cluster, CookieSuffix: "-" + port, Log: log,
		AllowHost: func(host string) bool { return own[strings.ToLower(host)] },
	})
	signIn := "http://" + address.String() + "/signin?code="
	link := func() string { return signIn + board.NewCode() }
	g, ctx := errgroup.WithContext(c.Context())
	g.Go(func() error { return run.Serve(ctx, ln, board, nil, time.Second, log) })
	g.Go(func() error { board.Run(ctx); return nil })
	g.Go(func() error {
		run.ManageMemory(ctx, &run.IdleTasks{MaxGrowthPercent: dashboard.MemoryGrowth})
		return nil
	})
	fmt.Fprintf(c.OutOrStdout(), "Dashboard: %s\nThe link is valid once, for a minute. Press Enter for another one, "+
		"and Ctrl-C to stop.\n", link())
	go printLinks(c.InOrStdin(), c.OutOrStdout(), link) // ends with the process: a read cannot be interrupted
	if !d.noBrowser {
		openBrowser(ctx, signIn+board.NewLocalCode(), c.ErrOrStderr())
	}
	return g.Wait()
}

// printLinks prints a new link for each line of in.
func printLinks(in io.Reader, out io.Writer, link func() string) {
	buffer := make([]byte, 1024)
	for {
		n, err := in.Read(buffer)
		if n > 0 && strings.Contains(string(buffer[:n]), "\n") {
			fmt.Fprintln(out, link())
		}
		if err != nil {
			return
		}
	}
}

// openBrowser opens a link in the user's browser. Other users of the machine can see the link.
func openBrowser(ctx context.Context, link string, stderr io.Writer) {
	cmd := exec.CommandContext(ctx, "xdg-open", link)
	err := cmd.Start()
	if err == nil {
		go func() { _ = cmd.Wait() }() // the browser may run until the user closes it
		return
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = errors.New("xdg-open is not installed")
	}
	fmt.Fprintf(stderr, "Warning: open the browser: %v. Open the link yourself.\n", err)
}
