// Command web is the workload of the demo and the tests. It answers on every path with its host and the client, serves
// /healthz, and allows changing its readiness. With -get, -api, -probe, -hold or -walk it is a client that uses Go's
// resolver.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"clusterctl/tests/programs/walk"
)

// options are the flags of the command.
type options struct {
	listen, echo, greet  string // addresses of the server
	get, api             string // what a client gets
	probe, hold, logFile string
	interval             time.Duration // of probes
	walk                 bool
}

func parseOptions() (o options) {
	flag.StringVar(&o.listen, "listen", ":8080", "where to listen")
	flag.StringVar(&o.get, "get", "", "fetch this URL, print what comes, and end")
	flag.StringVar(&o.api, "api", "",
		"get this path from the Kubernetes API with the pod's own credentials, print what comes, and end")
	flag.StringVar(&o.probe, "probe", "",
		"request this URL again and again, and print a line of JSON for each failure")
	flag.DurationVar(&o.interval, "every", 10*time.Millisecond, "how often -probe does")
	flag.StringVar(&o.hold, "hold", "",
		"keep a connection to this host:port, which echoes, and print a line of JSON when it ends")
	flag.StringVar(&o.echo, "echo", ":7000", "where to listen for connections and datagrams that are echoed")
	flag.StringVar(&o.greet, "tell", "",
		"where to tell clients of TCP, UDP and SCTP who answers and whom it sees; nowhere when empty")
	flag.BoolVar(&o.walk, "walk", false,
		"ask the questions that come on stdin, as tests/programs/walk has them, and print the answers")
	flag.StringVar(&o.logFile, "log", "",
		"append what -probe or -hold prints to this file: a pod's log goes with its containers")
	flag.Parse()
	return o
}

func main() {
	o := parseOptions()
	var err error
	switch {
	case o.probe != "" || o.hold != "":
		err = observe(o)
	case o.walk:
		err = walk.Run(context.Background(), os.Stdin, os.Stdout)
	case o.api != "":
		err = getAPI(o.api)
	case o.get != "":
		err = getURL(o.get)
	default:
		err = serve(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// observe probes a URL or holds a connection, and records the failures.
func observe(o options) (err error) {
	out := os.Stdout
	if o.logFile != "" {
		if out, err = os.OpenFile(o.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
			return err
		}
	}
	if o.hold != "" {
		holdConnection(o.hold, o.interval, out)
	}
	probeURL(o.probe, o.interval, out)
	return nil
}

// serve serves HTTP and the echo until a signal.
func serve(o options) error {
	host, _ := os.Hostname()
	server := &http.Server{Addr: o.listen, Handler: newHandler(host), ReadHeaderTimeout: 5 * time.Second}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-stop
		_ = server.Close()
	}()
	if err := serveEcho(o.echo); err != nil {
		return err
	}
	if o.greet != "" {
		go func() {
			err := walk.Serve(context.Background(), host, o.greet)
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}()
	}
	fmt.Println("listening on", o.listen)
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// newHandler returns the handler of all paths.
func newHandler(host string) http.Handler {
	var unready atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		client, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintf(w, "%s serves %s%s\n", host, client, greetingText())
	})
	mux.Handle("/who", walk.WhoHandler(host))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if unready.Load() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("POST /ready/{is}",
		func(_ http.ResponseWriter, r *http.Request) { unready.Store(r.PathValue("is") != "true") })
	return mux
}

func getURL(url string) error {
	client := &http.Client{Timeout: 2 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount/"

func getAPI(path string) error {
	token, err := os.ReadFile(accountDir + "token")
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(accountDir + "ca.crt")
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}
	r, err := http.NewRequest("GET", "https://kubernetes.default.svc"+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+string(token))
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status)
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

func greetingText() string {
	if g := os.Getenv("GREETING"); g != "" {
		return ": " + g
	}
	return ""
}
