package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// finalResult is the last line of JSON output with several lines. A reader that has it has the complete output.
type finalResult struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`    // always "result"; other lines have the kinds of report.Event
	Outcome string    `json:"outcome"` // done, failed or interrupted, as in the journal
	Message string    `json:"message,omitempty"`
	Count   *int      `json:"count,omitempty"` // number of listed elements
}

// writeResult writes the result for err, without secrets, and returns err.
func writeResult(w io.Writer, err error, secrets []string, count *int) error {
	r := finalResult{Time: time.Now(), Kind: "result", Outcome: state.Done, Count: count}
	switch {
	case errors.Is(err, session.ErrInterrupted):
		r.Outcome = state.Interrupted
	case err != nil:
		r.Outcome, r.Message = state.Failed, err.Error()
	}
	text, broken := json.Marshal(r)
	if broken == nil {
		_, broken = fmt.Fprintln(w, config.MaskJSON(string(text), secrets))
	}
	if err == nil {
		return broken
	}
	return err
}

// writeList writes the elements of a list and the result, one per line.
func writeList[E any](w io.Writer, elements []E) error {
	for _, e := range elements {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, string(text)); err != nil {
			return err
		}
	}
	n := len(elements)
	return writeResult(w, nil, nil, &n)
}
