package main

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode/utf8"

	"clusterctl/hcl/load"
)

// Dimensions of a picture, in SVG units.
const (
	boxHeight     = 26.0
	rowHeight     = 38.0
	columnGap     = 70.0
	pictureMargin = 16.0
	glyphWidth    = 7.3 // width of a character of the 12-unit monospace font
)

// pictureBox is a declaration in a picture.
type pictureBox struct {
	address   string
	needs     []string
	column    int // zero if it needs nothing
	x, y      float64
	width     float64
	preferred float64 // average position of the boxes that it needs
}

// drawPicture draws a graph as SVG. Declarations are to the right of those that they need.
func drawPicture(graph []load.Declaration) string {
	boxes, places, width, height := layoutBoxes(graph)
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="monospace" font-size="12">`+"\n",
		width,
		height,
		width,
		height,
	)
	b.WriteString(
		`<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>` + "\n",
	)
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	for _, from := range boxes {
		for _, address := range from.needs {
			to, ok := places[address]
			if !ok {
				continue
			}
			x1, y1, x2, y2 := from.x, from.y+boxHeight/2, to.x+to.width, to.y+boxHeight/2
			bend := max(columnGap/2, (x1-x2)/2)
			fmt.Fprintf(
				&b,
				`<path d="M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f" fill="none" stroke="#667" marker-end="url(#arrow)"><title>%s needs %s</title></path>`+"\n",
				x1,
				y1,
				x1-bend,
				y1,
				x2+bend,
				y2,
				x2,
				y2,
				html.EscapeString(from.address),
				html.EscapeString(to.address),
			)
		}
	}
	for _, d := range boxes {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="4" fill="%s" stroke="#334"/>`+"\n", d.x,
			d.y, d.width, boxHeight, colourOf(d.address))
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f">%s</text>`+"\n", d.x+8, d.y+17, html.EscapeString(d.address))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// layoutBoxes places every declaration one column to the right of the last one that it needs.
func layoutBoxes(graph []load.Declaration) (boxes []*pictureBox, places map[string]*pictureBox, width, height float64) {
	byAddress := map[string]load.Declaration{}
	for _, d := range graph {
		byAddress[d.Address] = d
	}
	columns := map[string]int{}
	var column func(address string) int
	column = func(address string) int {
		if n, ok := columns[address]; ok {
			return n
		}
		columns[address] = 0 // stops at cycles, which loaded configurations do not have
		n := 0
		for _, to := range byAddress[address].Needs {
			if _, ok := byAddress[to]; ok {
				n = max(n, column(to)+1)
			}
		}
		columns[address] = n
		return n
	}
	var inColumn [][]*pictureBox
	for _, d := range graph {
		one := &pictureBox{
			address: d.Address,
			needs:   d.Needs,
			column:  column(d.Address),
			width:   16 + glyphWidth*float64(utf8.RuneCountInString(d.Address)),
		}
		for len(inColumn) <= one.column {
			inColumn = append(inColumn, nil)
		}
		boxes, inColumn[one.column] = append(boxes, one), append(inColumn[one.column], one)
	}
	places = map[string]*pictureBox{}
	x := pictureMargin
	for _, list := range inColumn {
		widest := 0.0
		for _, d := range list {
			widest = max(widest, d.width)
			sum, n := 0.0, 0
			for _, to := range d.needs {
				if other, ok := places[to]; ok {
					sum, n = sum+other.y, n+1
				}
			}
			if n > 0 {
				d.preferred = sum / float64(n)
			}
		}
		slices.SortStableFunc(list, func(a, b *pictureBox) int { return cmp.Compare(a.preferred, b.preferred) })
		for i, d := range list {
			d.x, d.y = x, pictureMargin+float64(i)*rowHeight
			places[d.address] = d
			height = max(height, d.y+boxHeight+pictureMargin)
		}
		x += widest + columnGap
	}
	return boxes, places, max(x-columnGap+pictureMargin, 2*pictureMargin), max(height, 2*pictureMargin)
}

// colourOf returns the colour of a kind of declaration.
func colourOf(address string) string {
	kind, _, _ := strings.Cut(address, ".")
	switch kind {
	case "cluster", "machine":
		return "#dce9f7"
	case "workload", "object", "storage_class", "git_source", "helm_release", "kustomization",
		"manifests", "image":
		return "#e2f2df"
	}
	return "#f3f1e6"
}
