from tools.browser import WeaveBrowser
from tools.discord import WeaveDiscordClient
from tools.emacs import WeaveEmacs
from tools.nano import WeaveNano
from tools.nethack import WeaveNethack
from tools.weave_zombie_game import WeaveZombieGame


def action_lay_out_the_desk(subagent):
    main = agent.subagent("main", None, "Keep the desk in order", {"tidy": "boolean"}, args.budget)
    chat = WeaveDiscordClient(main, "no-token", "4711")
    chat.send_message("Good morning.")
    assert chat.get_messages() is not None, "Can the channel be read?"
    assert "discord-bot-4711" in main.tools, "Is the client among the tools?"
    game = WeaveZombieGame(main)
    game.send_command("look")
    assert main.tools["zombie_game"] is game, "Is the game among the tools?"
    opened = []
    for name, make in (("nano", WeaveNano), ("emacs", WeaveEmacs)):
        try:
            tool = make(main, f"{name}.txt")
        except FileNotFoundError:
            continue
        tool.send_keys("Hello")
        tool.send_command("Enter")
        tool.send_commands(["o", "k"])
        assert "Hello" in tool.get_screen_text(), "Is on the screen what was typed?"
        opened.append(name)
    try:
        dungeon = WeaveNethack(main)
        dungeon.send_keys("y")
        dungeon.render()
        opened.append("nethack")
    except FileNotFoundError:
        pass
    return opened


def check_desk(subagent):
    return {"tidy": len(subagent.tools) >= 2}


self.add_action("Lay out the desk", action_lay_out_the_desk)
self.add_evaluation("Is the desk laid out?", check_desk)
