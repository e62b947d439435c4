// Draws the diagrams of a page with Mermaid, which only pages with diagrams load, in colours for the theme.
(() => {
    const elements = document.querySelectorAll("pre.mermaid");
    if (elements.length === 0) return;
    const diagrams = [...elements].map(element => [element, element.textContent]);
    const light = {
        primaryColor: "#eef3fb", primaryBorderColor: "#4a6fa5", primaryTextColor: "#1b2733",
        lineColor: "#666677", edgeLabelBackground: "#ffffff", textColor: "#1b2733",
    };
    const dark = {
        darkMode: true, primaryColor: "#1f2a3a", primaryBorderColor: "#7da2d8", primaryTextColor: "#e6ebf2",
        lineColor: "#aaaabb", edgeLabelBackground: "#161923", textColor: "#e6ebf2",
    };
    const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
    let drawn;
    const draw = () => {
        if (drawn === isDark()) return;
        drawn = isDark();
        mermaid.initialize({
            startOnLoad: false,
            theme: "base",
            themeVariables: drawn ? dark : light,
            flowchart: { wrappingWidth: 400 },
            sequence: { actorMargin: 10, mirrorActors: false },
        });
        for (const [element, text] of diagrams) {
            element.removeAttribute("data-processed");
            element.textContent = text;
        }
        mermaid.run();
    };
    const script = document.createElement("script");
    script.src = path_to_root + "mermaid.js";
    script.onload = () => {
        draw();
        new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["class"] });
    };
    document.head.append(script);
})();
