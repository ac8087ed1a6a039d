package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"clusterctl/hcl/load"
)

// For any declarations, no box covers another or leaves the picture, and every box is to the left of those that depend
// on it.
func TestPicturesShowAllDeclarationsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var graph []load.Declaration
		for i := range rapid.IntRange(0, 30).Draw(t, "declarations") {
			d := load.Declaration{
				Address: fmt.Sprintf("machine.%s%d", rapid.StringMatching(`[a-z"<&é\[\]]{0,12}`).Draw(t, "name"), i),
			}
			for j := range i {
				if rapid.IntRange(0, 5).Draw(t, "needs") == 0 {
					d.Needs = append(d.Needs, graph[j].Address)
				}
			}
			graph = append(graph, d)
		}
		boxes, places, width, height := layoutBoxes(graph)
		arrows := 0
		for i, a := range boxes {
			if a.x < 0 || a.y < 0 || a.x+a.width > width || a.y+boxHeight > height {
				t.Fatalf("%s is outside", a.address)
			}
			for _, b := range boxes[i+1:] {
				if a.x < b.x+b.width && b.x < a.x+a.width && a.y < b.y+boxHeight && b.y < a.y+boxHeight {
					t.Fatalf("%s covers %s", a.address, b.address)
				}
			}
			for _, address := range a.needs {
				arrows++
				if to, ok := places[address]; !ok || to.x+to.width >= a.x {
					t.Fatalf("%s needs %s, which is not left of it", a.address, address)
				}
			}
		}
		texts, titles := readWords(t, drawPicture(graph))
		if len(titles) != arrows || len(texts) != len(graph) {
			t.Fatalf("%d arrows, want %d; %d texts, want %d", len(titles), arrows, len(texts), len(graph))
		}
		for i, d := range graph {
			if texts[i] != d.Address {
				t.Fatalf("it says %q for %q", texts[i], d.Address)
			}
		}
	})
}

// readWords returns the words of a picture, which must be well-formed XML.
func readWords(t *rapid.T, svg string) (texts, titles []string) {
	in, d := "", xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts, titles
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			in = x.Name.Local
		case xml.EndElement:
			in = ""
		case xml.CharData:
			if in == "text" {
				texts = append(texts, string(x))
			} else if in == "title" {
				titles = append(titles, string(x))
			}
		}
	}
}
