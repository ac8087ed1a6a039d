package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// report is a line of the output of -probe: a failed request, or the number of requests so far.
type report struct {
	At    time.Time `json:"at"`
	Took  float64   `json:"took,omitempty"` // seconds
	Error string    `json:"error,omitempty"`
	Made  int64     `json:"made,omitempty"`
}

// maxOpen is the maximum number of requests without an answer.
const maxOpen = 512

// probeURL makes requests at an interval, each on a new connection, until the process ends. It does not wait for the
// answers to earlier requests.
func probeURL(url string, every time.Duration, to io.Writer) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var mu sync.Mutex
	out := json.NewEncoder(to)
	say := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r)
	}
	var made atomic.Int64
	open := make(chan struct{}, maxOpen)
	requests, counts := time.NewTicker(every), time.NewTicker(time.Second)
	for {
		select {
		case now := <-counts.C:
			say(report{At: now, Made: made.Load()})
			continue
		case <-requests.C:
		}
		select {
		case open <- struct{}{}:
		default:
			say(report{At: time.Now(), Error: fmt.Sprintf("%d requests wait already", maxOpen)})
			continue
		}
		go func() {
			defer func() { <-open }()
			start := time.Now()
			err := requestOnce(client, url)
			made.Add(1)
			if err != nil {
				say(report{At: start, Took: time.Since(start).Seconds(), Error: err.Error()})
			}
		}()
	}
}

func requestOnce(client *http.Client, url string) error {
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", answer.Status)
	}
	return nil
}
