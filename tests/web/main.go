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

	"clusterctl/tests/matrix/walk"
)

//style:long flags and a handler for each path
func main() {
	address := flag.String("listen", ":8080", "where to listen")
	url := flag.String("get", "", "fetch this URL, print what comes, and end")
	api := flag.String("api", "",
		"get this path from the Kubernetes API with the pod's own credentials, print what comes, and end")
	probed := flag.String("probe", "", "request this URL again and again, and print a line of JSON for each failure")
	every := flag.Duration("every", 10*time.Millisecond, "how often -probe does")
	held := flag.String("hold", "",
		"keep a connection to this host:port, which echoes, and print a line of JSON when it ends")
	echoes := flag.String("echo", ":7000", "where to listen for connections and datagrams that are echoed")
	message := flag.String("tell", "",
		"where to tell clients of TCP, UDP and SCTP who answers and whom it sees; nowhere when empty")
	walks := flag.Bool("walk", false,
		"ask the questions that come on stdin, as tests/matrix/walk has them, and print the answers")
	log := flag.String("log", "",
		"append what -probe or -hold prints to this file: a pod's log goes with its containers")
	flag.Parse()
	if *probed != "" || *held != "" {
		out := os.Stdout
		if *log != "" {
			var err error
			if out, err = os.OpenFile(*log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		if *held != "" {
			holdConnection(*held, *every, out)
		}
		probeURL(*probed, *every, out)
		return
	}
	if *url != "" || *api != "" || *walks {
		var err error
		switch {
		case *walks:
			err = walk.Run(context.Background(), os.Stdin, os.Stdout)
		case *api != "":
			err = getAPI(*api)
		default:
			err = getURL(*url)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	host, _ := os.Hostname()
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
	server := &http.Server{Addr: *address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-stop
		_ = server.Close()
	}()
	if err := serveEcho(*echoes); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *message != "" {
		go func() {
			err := walk.Serve(context.Background(), host, *message)
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}()
	}
	fmt.Println("listening on", *address)
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
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
