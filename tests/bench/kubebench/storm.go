package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"sync"
	"sync/atomic"
)

// stormCmd measures the first minute after an API server's restart, in which every informer of a cluster lists and
// watches again at once. It ends when the last watch is open.
func stormCmd(fs *flag.FlagSet, c *commonFlags) func(context.Context) error {
	informers := fs.Int("informers", 2000, "informers that list and watch at once")
	perConn := fs.Int("informers-per-connection", 10, "informers sharing a TCP connection")
	initial := fs.Bool("initial-events", false, "have the watches begin with what there is now, as new clients do, "+
		"instead of listing first what the server has")
	return func(ctx context.Context) error {
		conns, err := c.connect((*informers + *perConn - 1) / *perConn)
		if err != nil {
			return err
		}
		wctx, stop := context.WithCancel(ctx)
		defer stop()
		var readers sync.WaitGroup
		var received atomic.Int64
		r := c.result("")
		m := startMeter(c.procs)
		// All informers start at once, because this is what a restart causes.
		o := runParallel(*informers, *informers, func(_, i int) error {
			path, query := informerQuery(i, c.namespace)
			k := conns[i / *perConn]
			if *initial {
				query.Del("resourceVersion")
				query.Set("watch", "1")
				query.Set("sendInitialEvents", "true")
				query.Set("resourceVersionMatch", "NotOlderThan")
				query.Set("allowWatchBookmarks", "true")
				stream, err := k.open(wctx, path+"?"+query.Encode(), "application/json")
				if err != nil {
					return err
				}
				lines := bufio.NewReaderSize(stream, 16<<10)
				n, err := initialEvents(lines)
				received.Add(n)
				if err != nil {
					stream.Close()
					return fmt.Errorf("watch %s: %w", path, err)
				}
				readers.Go(func() {
					defer stream.Close()
					_, _ = io.Copy(io.Discard, lines)
				})
				return nil
			}
			body, err := k.open(ctx, path+"?"+query.Encode(), "application/json")
			if err != nil {
				return err
			}
			version, n, err := listVersion(body)
			body.Close()
			received.Add(n)
			if err != nil {
				return fmt.Errorf("list %s: %w", path, err)
			}
			query.Set("watch", "1")
			query.Set("resourceVersion", version)
			query.Set("allowWatchBookmarks", "true")
			stream, err := k.open(wctx, path+"?"+query.Encode(), "application/json")
			if err != nil {
				return err
			}
			readers.Go(func() {
				defer stream.Close()
				_, _ = io.Copy(io.Discard, stream)
			})
			return nil
		})
		r.fill(o)
		m.stop(r)
		r.Extra["bytes_listed"] = received.Load()
		stop()
		readers.Wait()
		return r.print()
	}
}

// informerQuery returns the path and query of the i-th informer of a cluster. Half of the informers are kubelets, each
// with the pods of its node. The others watch what the daemons of every node need.
func informerQuery(i int, namespace string) (string, url.Values) {
	q := url.Values{"resourceVersion": {"0"}}
	if i%2 == 0 {
		q.Set("fieldSelector", fmt.Sprintf("spec.nodeName=kubebench-%d", i/2))
		return "/api/v1/pods", q
	}
	return [...]string{
		"/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/nodes", "/api/v1/namespaces/" +
			namespace + "/configmaps",
	}[i/2%4], q
}

// listVersion reads a list to its end, and returns the resource version, which is near its beginning, and the size.
func listVersion(r io.Reader) (version string, size int64, err error) {
	br := bufio.NewReaderSize(r, 16<<10)
	head, err := br.Peek(512)
	if err != nil && err != io.EOF {
		return "", 0, err
	}
	at := bytes.Index(head, []byte(`"metadata":`))
	if at < 0 {
		return "", 0, fmt.Errorf("no metadata in %.80q", head)
	}
	var meta struct {
		ResourceVersion string `json:"resourceVersion"`
	}
	if err := json.NewDecoder(bytes.NewReader(head[at+len(`"metadata":`):])).Decode(&meta); err != nil {
		return "", 0, err
	}
	size, err = io.Copy(io.Discard, br)
	return meta.ResourceVersion, size, err
}

// initialEvents reads a watch up to the bookmark after the initial events, and returns the size.
func initialEvents(r *bufio.Reader) (size int64, err error) {
	const end = `"k8s.io/initial-events-end":"true"`
	bookmark := false
	for begins := true; ; {
		part, err := r.ReadSlice('\n')
		size += int64(len(part))
		if begins {
			bookmark = bytes.HasPrefix(part, []byte(`{"type":"BOOKMARK"`))
		}
		switch begins = err == nil; {
		case bookmark && bytes.Contains(part, []byte(end)):
			return size, nil
		case err != nil && err != bufio.ErrBufferFull:
			return size, fmt.Errorf("it ended before the initial events did: %w", err)
		}
	}
}
