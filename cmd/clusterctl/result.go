package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/run"
	"clusterctl/provision/state"
)

// result is the last line of what a verb with -json says of more than one thing: a reader that has it has all.
type result struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`    // result, as run.Event has its kinds
	Outcome string    `json:"outcome"` // as in the journal: done, failed or interrupted
	Message string    `json:"message,omitempty"`
	Count   *int      `json:"count,omitempty"` // of what was listed
}

// end writes the result of what gave err, without secrets, and returns err.
func end(w io.Writer, err error, secrets []string, count *int) error {
	r := result{Time: time.Now(), Kind: "result", Outcome: state.Done, Count: count}
	switch {
	case errors.Is(err, run.ErrInterrupted):
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

// list writes the elements of a list and the result, a line each.
func list[E any](w io.Writer, elements []E) error {
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
	return end(w, nil, nil, &n)
}
